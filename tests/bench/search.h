/*
 * Search: the shape in which a direct pipeline is fastest, with events and with graphs: every chunk
 * size with every number of chunks in flight, in rounds as everything else.
 *
 * Thread: its caller's.
 */
#pragma once

#include "tests/bench/bench.h"
#include "tests/bench/direct.h"
#include "tests/bench/rig.h"

/* The memory is a whole number of these. */
#define SEARCH_CHUNK_MAX (16u << 20)

/* Poison the outputs, run the plan, check every byte; returns the seconds. */
double search_run_plan(const struct rig_memory *memory, const struct subject *subject,
                       struct direct_plan *plan);

/* Adds a row for each shape to the report's table. */
void search_best(const struct direct *direct, const struct rig_memory *memory,
                 const struct subject *subject, uint32_t n_rounds, struct bench_report *report,
                 struct direct_plan **ret_events, struct direct_plan **ret_graphs);
