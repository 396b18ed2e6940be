/*
 * Scheduler's turns, private: who is first of each priority and lane, and what users have used.
 *
 * A user's turn stands in the heap of its priority and lane; urgent ones stand among the normal
 * ones while their user is demoted.
 *
 * Thread: the front end's loop.
 */
#pragma once

#include "daemon/scheduler.h"

/* Sets of lanes: lane 0 is for flows of several devices, 1 + i for those of device i alone. */
#define TURNS_LANE(i) (UINT64_C(1) << (i))

/* Put the flow into its user's turn, or take it out. */
void turns_add(struct scheduler *scheduler, struct flow *flow);
void turns_remove(struct scheduler *scheduler, struct flow *flow);
/* The flow, which is there, is due anew.  Its user pays next, which finds it its place. */
void turns_go_on(struct scheduler *scheduler, struct flow *flow);

/* Of these lanes of the class, not none, the one that goes first; and of its users the first. */
uint32_t turns_first_lane(const struct scheduler_class *class, uint64_t lanes);
struct flow *turns_first_flow(const struct scheduler_turn *turn);

/* The user has used so much; so much more or less than it paid for. */
void turns_pay(struct scheduler *scheduler, struct scheduler_user *user, uint64_t cost_ns);
void turns_correct(struct scheduler *scheduler, struct scheduler_user *user, int64_t more_ns);

/* The same of what it may use as urgent. */
void turns_pay_urgent(struct scheduler *scheduler, struct scheduler_user *user, uint64_t cost_ns);
void turns_correct_urgent(struct scheduler_user *user, int64_t more_ns);
/* Whose time has come is urgent again. */
void turns_promote(struct scheduler *scheduler);
/* False: the user has used its share, and its urgent turns are among the normal ones now. */
bool turns_stay_urgent(struct scheduler *scheduler, struct scheduler_user *user);
