/*
 * Fake ops: a registry for tests of the worker and its backends, with ops whose behaviour a test
 * can see and steer.  It takes the place of cuda/ops in what it is linked into.
 *
 *     affine   map      u32 -> u32: 3 x + add
 *     gate     map      u32 -> u32: waits until its input is not 0, then copies it
 *     width    map      u8[16], tail short -> u32: the number of chunks of the call, in the upper
 *                       half the bytes of the record; wants FAKE_PARALLEL records at once
 *     chain    reduce   u32 -> u64, leaves of FAKE_LEAF: a fold that depends on the order
 *     palette  map      } as tests/operands has them: with constants, with a varying input
 *     spans    map      }
 */
#pragma once

#include "cuda/registry.h"

enum { FAKE_AFFINE, FAKE_GATE, FAKE_WIDTH, FAKE_CHAIN, FAKE_PALETTE, FAKE_SPANS, FAKE_COUNT };

#define FAKE_PARALLEL 16u
#define FAKE_LEAF     4u
#define FAKE_BLOCK    16u

struct fake_params {
    uint32_t add;
};

struct fake_partial {
    uint64_t sum;
    uint64_t n_leaves;
};

/* What chain makes of all records, written independently of its three steps. */
uint64_t fake_chain(const uint32_t *records, uint32_t n_records);
