/*
 * Manifest, private: what its two files share.  But for their own arguments all of it relies on
 * what manifest_check() has checked.
 *
 * Threads: pure functions.
 */
#pragma once

#include "proto/manifest.h"

/* Bytes of a parameter of this type in the packed parameters. */
uint32_t param_type_size(enum param_type type);

bool manifest_is_float(const struct manifest_param *param);
/* Does the float parameter take this value? */
bool manifest_is_in_range(const struct manifest_param *param, double value);
/* NULL: the op has no such parameter. */
const struct manifest_param *manifest_find_param(const struct manifest_op *op, const char *name);
/* The value of an integer parameter in the packed ones. */
int64_t manifest_load_integer(const struct manifest_param *param, const uint8_t *params);
