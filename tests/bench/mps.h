/*
 * Mps: a private MPS daemon of NVIDIA's, for rivals whose processes share a GPU as well as it can.
 *
 * Thread: its caller's.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct mps {
    char folder[64]; /* its pipes and logs; "" = there is none */
    pid_t pid;
};

/* False: there is no nvidia-cuda-mps-control here, or it did not start. */
bool mps_start(struct mps *mps);
/* Asks it to quit, and waits for that; its clients have ended. */
void mps_stop(struct mps *mps);

/* Programs that are started in between are its clients. */
void mps_enter(const struct mps *mps);
void mps_leave(void);
