/*
 * Sample ops: sound manifests, and the parameter structs that the sources of such ops would
 * declare. A test changes what it is about.
 */
#pragma once

#include "proto/manifest.h"

struct blend_params {
    uint32_t block;
    float a;
    double b;
    int64_t shift;
    int32_t bias;
    uint32_t mode;
};

/* Where make_op() has them. */
enum { P_BLOCK, P_A, P_B, P_SHIFT, P_BIAS, P_MODE };

struct image_params {
    uint32_t width, channels;
    int64_t pitch;
};

/* "blend": two arrays into one, a parameter of each type; "a" is required. */
struct manifest_op make_op(void);
/* The same as a reduce op. */
struct manifest_op make_reduce(void);
/* "hash": documents of any length, and a constant. */
struct manifest_op make_varying(void);
/* "hash" of images whose rows may be longer than their pixels. */
struct manifest_op make_bounded(void);

/* Make this array a varying one. */
void vary(struct manifest_array *array);
