/*
 * Table: rows of text in columns that fit, on stdout.
 *
 * Threads: one.
 */
#pragma once

#include "client/cli/cli.h"

#include <libsmartcols.h>

struct table_column {
    const char *title;
    bool is_number; /* to the right */
    bool is_long;   /* cut where the terminal ends */
};

/* NULL: out of memory, which table_print() reports. */
struct libscols_table *table_create(const struct table_column *columns, size_t n_columns);
/* One row: as many texts as there are columns. */
void table_add(struct libscols_table *table, const char *const *texts, size_t n_texts);
/* Print the table, free it and flush stdout. */
int table_print(struct libscols_table *table);
