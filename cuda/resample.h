/*
 * Resample: which pixels of a line make up a pixel of a shorter or longer one, and their weights,
 * as Pillow has them (its resize(), 8 bits a channel): windows and weights are worked out in
 * doubles, step by step alike on both backends, and rounded to RESAMPLE_BITS behind the point; all
 * that touches pixels is integers.
 */
#pragma once

#include "cuda/op.h"

#define RESAMPLE_BITS 22u /* a weight times 255 and a sign fit 32 bits */
#define RESAMPLE_HALF (1u << (RESAMPLE_BITS - 1))

/* In the order of the words that name them. */
enum resample_filter { RESAMPLE_NEAREST, RESAMPLE_BOX, RESAMPLE_BILINEAR };

/* From n_in pixels to n_out. */
struct resample_axis {
    enum resample_filter filter;
    uint32_t n_in;
    uint32_t n_out;
};

/* Pixels first .. first + n - 1 make up one of the result. */
struct resample_window {
    uint32_t first, n;
    double center, shrink; /* shrink: of the filter's width */
    double total;          /* of the weights as the filter has them */
};

/* The weight of the pixel k behind first, before the total is made 1. */
GP_INLINE double resample_weigh(const struct resample_axis *axis,
                                const struct resample_window *window, uint32_t k)
{
    const double x = ((double)(window->first + k) - window->center + 0.5) * window->shrink;

    if (axis->filter == RESAMPLE_BILINEAR) {
        const double distance = x < 0.0 ? -x : x;

        return distance < 1.0 ? 1.0 - distance : 0.0;
    }
    return axis->filter == RESAMPLE_NEAREST || (x > -0.5 && x <= 0.5) ? 1.0 : 0.0;
}

/* What makes up pixel i of the result. */
GP_INLINE struct resample_window resample_window(const struct resample_axis *axis, uint32_t i)
{
    const double scale = (double)axis->n_in / axis->n_out;
    const double width = scale < 1.0 ? 1.0 : scale;
    const double support = (axis->filter == RESAMPLE_BILINEAR ? 1.0 : 0.5) * width;
    const double center = (i + 0.5) * scale, start = center - support + 0.5;
    uint32_t end = (uint32_t)(center + support + 0.5);
    struct resample_window window = {start > 0.0 ? (uint32_t)start : 0, 0, center, 1.0 / width,
                                     0.0};

    if (axis->filter == RESAMPLE_NEAREST) {
        window.first = (uint32_t)((2 * (uint64_t)i + 1) * axis->n_in / (2 * (uint64_t)axis->n_out));
        end = window.first + 1;
    }
    end = end < axis->n_in ? end : axis->n_in;
    window.n = end > window.first ? end - window.first : 0;
    if (axis->filter == RESAMPLE_BOX && window.n > 2) {
        /* Only the outermost may lie outside. */
        window.total = window.n - 2 + resample_weigh(axis, &window, 0) +
                       resample_weigh(axis, &window, window.n - 1);
        return window;
    }
    GP_ROLLED
    for (uint32_t k = 0; k < window.n; k++) {
        window.total += resample_weigh(axis, &window, k);
    }
    return window;
}

/* The weights of pixel k and the n - 1 that follow. */
GP_INLINE void resample_weights(const struct resample_axis *axis,
                                const struct resample_window *window, uint32_t k, uint32_t n,
                                uint32_t *ret_weights)
{
    GP_ROLLED
    for (uint32_t j = 0; j < n; j++) {
        const double weight = resample_weigh(axis, window, k + j) / window->total;

        ret_weights[j] = (uint32_t)(0.5 + weight * (1u << RESAMPLE_BITS));
    }
}

/* sum: RESAMPLE_HALF and the products of all pixels with their weights. */
GP_INLINE uint8_t resample_round(uint32_t sum)
{
    const uint32_t value = sum >> RESAMPLE_BITS;

    return (uint8_t)(value < 255 ? value : 255);
}
