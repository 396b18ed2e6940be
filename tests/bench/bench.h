/*
 * Bench: what every benchmark needs.  A private daemon, CPU time of processes, fresh data, medians,
 * and one report as a table and as JSON.
 *
 * Whatever goes wrong ends the program with a message; children die with it (PDEATHSIG), and a
 * daemon's folder is removed.
 *
 * The machine is never quiet, so figures are compared within one run: rounds in which the variants
 * take turns, and the median of the ratios of each round.
 *
 * Threads: one, but for what a benchmark itself starts.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- processes ------------------------------------------------------------------------------ */

struct bench_daemon {
    char folder[64];
    char socket_path[96];
    pid_t pid;
    pid_t worker;
    const char *ring_pool;     /* for its --ring-pool, set beforehand; NULL: the default */
    const char *devices;       /* for its --devices, likewise; NULL: the first */
    struct bench_daemon *next; /* of those that run ... */
    pid_t starter;             /* ... and whose it is */
};

/* A program of this build, as "daemon/gpupiped". */
void bench_find(const char *program, char *ret_path, size_t size);

/* "cpu" or "cuda": ends the program with exit code 77 where it finds no device. */
void bench_need_backend(const char *backend);

/* How many there are, 1 or more, for a backend that there is. */
uint32_t bench_count_devices(const char *backend);

/* path NULL: the daemon of this build.  Returns once it is ready.  The struct stays where it is
 * until the daemon is stopped. */
void bench_daemon_start(struct bench_daemon *daemon, const char *path, const char *backend);
void bench_daemon_stop(struct bench_daemon *daemon);
/* Other users' processes may connect as well. */
void bench_daemon_admit_all(const struct bench_daemon *daemon);

/* fork(), and the child dies with this process.  0 in the child, which ends with _exit(). */
pid_t bench_fork(void);
/* As root, in such a child: it goes on as this user. */
void bench_become(uid_t uid);
/* Ask a child to end, and wait for it. */
void bench_end(pid_t pid);

struct bench_usage {
    double cpu_s;    /* all threads, to the nanosecond */
    double system_s; /* the kernel's part of it, by sampling at the clock's tick */
};

/* pid 0: this process. */
struct bench_usage bench_usage(pid_t pid);
/* What was used since. */
struct bench_usage bench_usage_since(pid_t pid, const struct bench_usage *start);

/* Resident memory; what it shares with others counts in full. */
double bench_rss_kib(pid_t pid);

/* ---- data ----------------------------------------------------------------------------------- */

void *bench_allocate(size_t size);
/* Fresh random bytes. */
void bench_fill(void *bytes, size_t size);
/* Bytes that no result has for long; also brings the pages in. */
void bench_poison(void *bytes, size_t size);
/* The program ends where they differ. */
void bench_check_same(const char *what, const void *got, const void *want, size_t size);

/* The numbers below n in random order: for taking turns.  A fixed order beats with whatever else
 * the machine does. */
void bench_shuffle(uint32_t *ret_order, uint32_t n);

/* ---- numbers -------------------------------------------------------------------------------- */

/* These sort their values in place; n > 0. */
double bench_median(double *values, size_t n);
/* The value that the share (0..1) of all values does not exceed. */
double bench_quantile(double *values, size_t n, double share);

/* A cell of a row: a text, or a number where text is NULL; NAN is "-", in JSON null. */
struct bench_cell {
    const char *name; /* column heading and JSON key */
    const char *text;
    double number;
    int n_decimals;
};

struct bench_report;

/* json_path NULL: the table alone. */
struct bench_report *bench_report_create(const char *benchmark, const char *json_path);
/* A table of its own, under a title that is its JSON key. */
void bench_report_table(struct bench_report *report, const char *title, const char *explanation);
/* Headings come from the first row of a table. */
void bench_report_row(struct bench_report *report, const struct bench_cell *cells, size_t n);
/* A row of a table of claims: a ratio, and the bound that it is to reach. */
void bench_report_claim(struct bench_report *report, const char *claim, double ratio, double bound);
/* A row of a table of limits: a figure, and the bound that it is not to exceed; NAN: it is stated.
 */
void bench_report_limit(struct bench_report *report, const char *limit, double figure,
                        double bound);
void bench_report_destroy(struct bench_report *report);
