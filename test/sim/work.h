/* The workload: random sequences of calls of dibs.h, made by the threads of the simulated processes. */
#ifndef SIM_WORK_H
#define SIM_WORK_H

#include "judge.h"

void sim_work_begin(const struct sim_plan *plan);
void sim_work_kill(int proc);             /* the process is killed; another begins in its place */
struct sim_proc *sim_work_proc(int proc); /* NULL: the process has ended */
bool sim_work_is_over(void);

#endif
