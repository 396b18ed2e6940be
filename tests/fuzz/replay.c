/*
 * Replay: the main of a fuzz target without libFuzzer.  Runs the target once over every file of the
 * folders given, as a TAP test; a defect aborts.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define INPUT_SIZE_MAX (1u << 20)

static unsigned n_tests;

/* Run one file in a buffer of just its size, so that a sanitizer sees every byte read too far. */
static void replay_file(const char *folder, const char *name)
{
    static uint8_t content[INPUT_SIZE_MAX];
    char path[4096];
    FILE *file;
    size_t size;
    uint8_t *input;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "re");
    if (file == NULL) {
        printf("not ok %u - %s cannot be opened\n", ++n_tests, name);
        exit(1);
    }
    size = fread(content, 1, sizeof(content), file);
    fclose(file);
    input = malloc(size);
    if (input == NULL) {
        abort();
    }
    memcpy(input, content, size);
    LLVMFuzzerTestOneInput(input, size);
    free(input);
    printf("ok %u - %s\n", ++n_tests, name);
    fflush(stdout);
}

static void replay_folder(const char *folder)
{
    struct dirent **entries;
    int n_entries = scandir(folder, &entries, NULL, alphasort);

    for (int i = 0; i < n_entries; i++) {
        if (entries[i]->d_name[0] != '.') {
            replay_file(folder, entries[i]->d_name);
        }
        free(entries[i]);
    }
    if (n_entries >= 0) {
        free(entries);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        replay_folder(argv[i]);
    }
    if (n_tests == 0) {
        printf("not ok 1 - there is no corpus\n");
        n_tests = 1;
    }
    printf("1..%u\n", n_tests);
    return 0;
}
