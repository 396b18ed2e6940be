/*
 * Writer bench: a writer over a non-blocking socketpair for one test, and what its callbacks said.
 *
 * Threads: the thread that runs the tests.
 */
#pragma once

#include "proto/writer.h"

#define WRITER_MESSAGES_MAX 512

extern struct writer *writer;
extern int sockets[2]; /* it sends into the first */
/* How often each message was said to be sent or lost, by its number; the last that was said so. */
extern unsigned n_sent[WRITER_MESSAGES_MAX];
extern unsigned n_lost[WRITER_MESSAGES_MAX];
extern unsigned last_sent;

/* Fresh ones; they are closed at the end of the test. */
void writer_open(void);
/* The callback that counts, and the number of a message as its argument. */
void writer_count(void *arg, bool is_sent);
void *writer_number(unsigned n);
/* A message that counts as this number. */
struct writer_message *writer_message(unsigned n);
