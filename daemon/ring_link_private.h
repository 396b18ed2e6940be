/*
 * Ring link, inside: for ring_link.c (a ring's life and work) and ring_open.c (how it begins).
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/ring_link.h"

/* Take it out of the server's list. */
void ring_link_unlink(struct ring_link *link);
/* Free one that nobody knows of, or that nobody knows of any more. */
void ring_link_dispose(struct ring_link *link);
/* It takes nothing more, and is finished as soon as nothing holds it. */
void ring_link_end(struct ring_link *link);
/* A device cannot have its data any more: what it has accepted is answered so. */
void ring_link_spoil(struct ring_link *link, const struct failure *failure);
/* Hear its doorbell.  0 or a libuv error. */
int ring_link_listen(struct ring_link *link);
/* Look at it in the next turns, until it sleeps. */
void ring_link_mark_awake(struct ring_link *link);
