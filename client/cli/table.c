/*
 * Rows of text in columns that fit.
 *
 * Threads: one.
 */
#include "client/cli/table.h"

struct libscols_table *table_create(const struct table_column *columns, size_t n_columns)
{
    struct libscols_table *table = scols_new_table();

    for (size_t i = 0; table != NULL && i < n_columns; i++) {
        int flags =
            (columns[i].is_number ? SCOLS_FL_RIGHT : 0) | (columns[i].is_long ? SCOLS_FL_TRUNC : 0);

        if (scols_table_new_column(table, columns[i].title, 0, flags) == NULL) {
            scols_unref_table(table);
            return NULL;
        }
    }
    return table;
}

void table_add(struct libscols_table *table, const char *const *texts, size_t n_texts)
{
    struct libscols_line *line = table == NULL ? NULL : scols_table_new_line(table, NULL);

    for (size_t i = 0; line != NULL && i < n_texts; i++) {
        scols_line_set_data(line, i, texts[i]);
    }
}

int table_print(struct libscols_table *table)
{
    int rc = table == NULL ? -1 : scols_print_table(table);

    scols_unref_table(table);
    if (rc != 0) {
        cli_error("cannot print a table");
        return CLI_FAILED;
    }
    return cli_flush();
}
