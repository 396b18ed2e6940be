/*
 * Bench options: getopt over a table.  See bench_options.h.
 */
#include "tests/bench/bench_options.h"

#include "proto/message.h"
#include "proto/util.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 12
#define EXIT_USAGE  2
#define HELP_COLUMN 26

void bench_options_refuse(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("; see --help\n", stderr);
    exit(EXIT_USAGE);
}

static uint64_t read_number(const struct bench_option *option, const char *text)
{
    static const char units[] = "KMG";
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;

    if (end == text || *text == '-' || (*end != '\0' && (unit == NULL || end[1] != '\0')) ||
        value > option->most >> shift || value << shift < option->least) {
        bench_options_refuse("--%s takes a number from %llu to %llu, or with K, M or G, not \"%s\"",
                             option->name, (unsigned long long)option->least,
                             (unsigned long long)option->most, text);
    }
    return (uint64_t)value << shift;
}

static void set(const struct bench_option *option, const char *text)
{
    if (option->text != NULL) {
        *option->text = text;
    } else if (option->count != NULL) {
        *option->count = (uint32_t)read_number(option, text);
    } else {
        *option->size = read_number(option, text);
        *option->size -= *option->size % option->least;
    }
}

static void print_option(const struct bench_option *option)
{
    int width = printf("  --%s %s", option->name, option->value);

    printf("%*s%s", MAX(HELP_COLUMN - width, 2), "", option->help);
    if (option->count != NULL) {
        printf(", %llu to %llu", (unsigned long long)option->least,
               (unsigned long long)option->most);
    } else if (option->size != NULL) {
        bool is_mega = option->least >= 1u << 20;

        printf(", whole %llu%c", (unsigned long long)option->least >> (is_mega ? 20 : 10),
               is_mega ? 'M' : 'K');
    }
    if (option->otherwise != NULL) {
        printf(" (default %s)", option->otherwise);
    }
    putchar('\n');
}

_Noreturn static void print_help(const struct bench_option *options, size_t n, const char *operands,
                                 const char *summary)
{
    printf("Usage: %s [OPTION]...%s%s\n%s\n\n", program_invocation_short_name,
           operands != NULL ? " " : "", operands != NULL ? operands : "", summary);
    for (size_t i = 0; i < n; i++) {
        print_option(&options[i]);
    }
    exit(EXIT_SUCCESS);
}

int bench_options_read(int argc, char **argv, const struct bench_option *options, size_t n,
                       const char *operands, const char *summary)
{
    struct option long_options[OPTIONS_MAX + 2] = {{"help", no_argument, NULL, OPTIONS_MAX}};
    int i;

    assert(n <= OPTIONS_MAX);
    for (i = 0; i < (int)n; i++) {
        long_options[1 + i] = (struct option){options[i].name, required_argument, NULL, i};
        if (options[i].otherwise != NULL) {
            set(&options[i], options[i].otherwise);
        }
    }
    while ((i = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (i == '?') {
            exit(EXIT_USAGE);
        }
        if (i == OPTIONS_MAX) {
            print_help(options, n, operands, summary);
        }
        set(&options[i], optarg);
    }
    if (operands == NULL && optind < argc) {
        bench_options_refuse("\"%s\" is one argument too many", argv[optind]);
    }
    return optind;
}

enum priority bench_options_priority(const char *text)
{
    for (enum priority priority = 0; priority < PRIORITY_COUNT; priority++) {
        if (strcmp(text, priority_names[priority]) == 0) {
            return priority;
        }
    }
    bench_options_refuse("--priority takes urgent, normal or bulk, not \"%s\"", text);
}
