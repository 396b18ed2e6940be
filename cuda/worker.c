/*
 * gpupipe-worker-X: the process that drives one device for the front end.
 *
 *     control socket (descriptor 3) <--> control thread (control.c): device, segments, queues
 *     queues and doorbell           <--> data thread (pump.c) <--> device.h: the backend
 *
 * This file is the command line and what the process does to itself.  The program is the same for
 * every backend; which one it is linked with decides its name.
 *
 * Exit status: 0 the front end ended it, or --probe and the like succeeded; 1 it could not go on
 * (the front end has been told why); 2 it was not started by a front end, or wrongly; 3 the device
 * is lost with what it was doing (likewise).
 */
#include "cuda/control.h"
#include "cuda/device.h"
#include "proto/util.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define EXIT_USAGE 2

/* Whoever must die for want of memory, let it be a worker: the front end replaces it. */
#define OOM_SCORE "500"

static int print_help(const char *device)
{
    (void)device;
    printf("Usage: %s [--device ID] [--probe | --version | --help]\n"
           "Drives one device for gpupiped, which starts it.\n\n"
           "  --device ID  of several: an index as nvidia-smi shows it, or within\n"
           "               CUDA_VISIBLE_DEVICES; or a UUID (default 0)\n"
           "  --probe      print the device, its limits and how many there are, as\n"
           "               key=value lines\n"
           "  --version    print the version\n"
           "  --help       print this\n",
           program_invocation_short_name);
    return EXIT_SUCCESS;
}

static int print_version(const char *device)
{
    (void)device;
    printf("%s %s\n", program_invocation_short_name, GPUPIPE_VERSION);
    return EXIT_SUCCESS;
}

static int print_probe(const char *device)
{
    struct worker_caps caps;
    struct failure failure;
    int error = device_backend.select(device, &failure);

    if (error == 0) {
        error = device_backend.probe(&caps, &failure);
    }
    if (error < 0) {
        fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, status_name(failure.status),
                failure.message);
        return EXIT_FAILURE;
    }
    printf("backend=%s\ndevices=%u\nname=%s\nuuid=%s\n", caps.backend, caps.n_devices, caps.name,
           caps.uuid);
    printf("memory=%" PRIu64 "\nchunk_size=%" PRIu64 "\nbulk_chunks=%u\nbulk_bytes=%" PRIu64 "\n",
           caps.memory, caps.chunk_size, caps.bulk_chunks, caps.bulk_bytes);
    printf("threads=%u\nnuma=%d\nops=", caps.n_threads, caps.numa);
    for (uint32_t i = 0; i < n_op_codes; i++) {
        printf("%s%s", i > 0 ? "," : "", op_codes[i]->manifest->name);
    }
    printf("\n");
    return EXIT_SUCCESS;
}

static bool has_control_socket(void)
{
    int type;
    socklen_t size = sizeof(type);

    return getsockopt(WORKER_CONTROL_FD, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == SOCK_SEQPACKET;
}

/* Raise it only: a lower score than we have been given is not ours to take. */
static void offer_to_oom_killer(void)
{
    _cleanup_(close_fd) int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char score[16] = "";

    if (fd >= 0 && read(fd, score, sizeof(score) - 1) > 0 && atoi(score) < atoi(OOM_SCORE) &&
        write(fd, OOM_SCORE, strlen(OOM_SCORE)) < 0) {
        return; /* without it the kernel chooses by size, which is no worse than for others */
    }
}

/*
 * The front end alone decides when a worker ends: by STOP, by closing the socket, by SIGKILL, or by
 * dying.  A terminal's or a service manager's signals go to the whole group and would end a worker
 * that still has work in flight.
 */
static void settle_process(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    offer_to_oom_killer(); /* before the next line, which closes /proc/self to us */
    prctl(PR_SET_DUMPABLE, 0);
    fcntl(WORKER_CONTROL_FD, F_SETFD, FD_CLOEXEC);
    /* O_NONBLOCK is this end's alone, and this thread has nothing else to wait for. */
    fcntl(WORKER_CONTROL_FD, F_SETFL, fcntl(WORKER_CONTROL_FD, F_GETFL) & ~O_NONBLOCK);
}

static int run(const char *device)
{
    if (!has_control_socket()) {
        fprintf(stderr,
                "%s: no control socket: gpupiped starts this program; by hand try --probe\n",
                program_invocation_short_name);
        return EXIT_USAGE;
    }
    settle_process();
    return control_run(WORKER_CONTROL_FD, device) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static const struct option {
    const char *name;
    int (*run)(const char *device); /* NULL: the first there is */
} options[] = {
    {"--probe", print_probe},
    {"--version", print_version},
    {"--help", print_help},
};

int main(int argc, char **argv)
{
    const char *device = NULL;

    if (argc >= 3 && strcmp(argv[1], "--device") == 0) {
        device = argv[2];
        argc -= 2;
        argv += 2;
    }
    if (argc == 1) {
        return run(device);
    }
    for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(options); i++) {
        if (strcmp(argv[1], options[i].name) == 0) {
            return options[i].run(device);
        }
    }
    fprintf(stderr, "%s: unknown arguments; try --help\n", program_invocation_short_name);
    return EXIT_USAGE;
}
