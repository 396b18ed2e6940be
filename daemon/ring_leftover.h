/*
 * Ring leftovers: the queues of rings that have ended on connections that have not.  What was
 * completed may still be reaped from them, until their connection ends, or as many rings of the
 * same user as one connection may have have ended since.
 *
 * Then their pages are freed, whoever has them mapped: a client that keeps mappings of the rings it
 * has closed would otherwise have the daemon's memory without bound, and nobody would count it.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "proto/ring.h"

#include <stdint.h>
#include <sys/types.h>

struct ring_leftover;

/* The queues are the list's from here on. */
void ring_leftovers_add(struct ring_leftover **leftovers, uid_t uid, uint64_t connection,
                        struct ring *queues);
/* This connection has ended. */
void ring_leftovers_drop(struct ring_leftover **leftovers, uint64_t connection);
