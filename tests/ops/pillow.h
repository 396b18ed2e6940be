/*
 * Pillow: Python's package of that name, as a reference for the ops of images: a child process that
 * answers one question after the other until the test's end.
 */
#pragma once

#include <stdint.h>

/* A row has pitch bytes, the first width * channels of them pixels. */
struct pillow_image {
    const uint8_t *bytes;
    uint32_t width, height, channels, pitch;
};

/* Skips the test where Python or Pillow is missing. */
void pillow_start(void);

/*
 * Image.resize(), along the rows first whatever the version, without gaps between rows; 1, 3 or 4
 * channels, the fourth as one of CMYK.
 */
void pillow_resize(const struct pillow_image *image, uint32_t out_width, uint32_t out_height,
                   const char *filter, uint8_t *ret_bytes);

/* What imagehash.dhash() computes, with this filter in the place of LANCZOS. */
uint64_t pillow_dhash(const struct pillow_image *image, const char *filter);
