/*
 * Aside: one call at a time, handed over by counting up `posted` and back by `done`.  Who sleeps
 * and is woken: see shared_words.h.
 */
#include "daemon/aside.h"

#include "proto/shared_words.h"
#include "proto/util.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <uv.h>

struct aside {
    struct shared_line posted; /* calls so far ... */
    struct shared_line done;   /* ... and those that have returned */
    struct shared_line sleep;  /* the thread's */
    void (*call)(void *arg);   /* NULL: end */
    void *arg;
    uv_sem_t news;
    uv_thread_t thread;
};

static void wait_for_news(struct aside *aside, uint32_t seen)
{
    uint64_t until_ns = now_ns() + ASIDE_SPIN_NS;

    while (shared_load(&aside->posted.value, __ATOMIC_ACQUIRE) == seen) {
        if (now_ns() < until_ns) {
            cpu_relax();
        } else if (shared_sleep(&aside->sleep, &aside->posted, seen)) {
            uv_sem_wait(&aside->news);
        }
    }
}

static void work(void *arg)
{
    struct aside *aside = arg;

    pthread_setname_np(pthread_self(), "aside");
    for (uint32_t n = 0;; n++) {
        wait_for_news(aside, n);
        if (aside->call == NULL) {
            return;
        }
        aside->call(aside->arg);
        shared_store(&aside->done.value, n + 1, __ATOMIC_RELEASE);
    }
}

static uint32_t post(struct aside *aside, void (*call)(void *arg), void *arg)
{
    uint32_t n = shared_load(&aside->posted.value, __ATOMIC_RELAXED) + 1;

    aside->call = call;
    aside->arg = arg;
    if (shared_publish(&aside->posted, n, &aside->sleep)) {
        uv_sem_post(&aside->news);
    }
    return n;
}

/* Signals are the loop's. */
static int start_thread(struct aside *aside)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = uv_thread_create(&aside->thread, work, aside);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

int aside_create(struct aside **ret_aside)
{
    struct aside *aside = calloc(1, sizeof(*aside));

    if (aside == NULL) {
        return -ENOMEM;
    }
    int r = uv_sem_init(&aside->news, 0);
    if (r == 0) {
        r = start_thread(aside);
        if (r < 0) {
            uv_sem_destroy(&aside->news);
        }
    }
    if (r < 0) {
        free(aside);
        return r;
    }
    *ret_aside = aside;
    return 0;
}

void aside_destroy(struct aside *aside)
{
    if (aside == NULL) {
        return;
    }
    post(aside, NULL, NULL);
    uv_thread_join(&aside->thread);
    uv_sem_destroy(&aside->news);
    free(aside);
}

void aside_run(struct aside *aside, void (*call)(void *call_arg), void *call_arg,
               void (*meanwhile)(void *arg), void *arg)
{
    uint32_t n = post(aside, call, call_arg);

    while (shared_load(&aside->done.value, __ATOMIC_ACQUIRE) != n) {
        meanwhile(arg);
    }
}
