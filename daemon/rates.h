/*
 * Rates: what a record of an op with some parameters took lately, remembered from one job to the
 * next, whoever's they are.
 *
 * Each job measures for itself, beginning with what is remembered: so nobody's load changes what a
 * job under way is known to take, and a job that nobody has had before begins as unknown.  A place
 * is found by a hash with a salt that no client knows: who would be taken for another's op cannot
 * choose parameters for it.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/scheduler.h"

#define RATES 256 /* kept; a power of two.  Of two that share a place the later one is */

struct rates {
    uint64_t salt;
    struct {
        uint64_t key; /* 0: none */
        struct scheduler_rate rate;
    } all[RATES];
};

void rates_init(struct rates *rates);
/* params are LIMIT_PARAM_BYTES. */
uint64_t rates_key(const struct rates *rates, uint32_t op, const uint8_t *params);
/* All zero, which is unknown, if nothing is. */
struct scheduler_rate rates_recall(const struct rates *rates, uint64_t key);
/* What is unknown is not remembered. */
void rates_remember(struct rates *rates, uint64_t key, const struct scheduler_rate *rate);
