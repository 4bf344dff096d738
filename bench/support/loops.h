/* Busy loops beside what is measured, each a process, and how far they get. */
#ifndef BENCH_LOOPS_H
#define BENCH_LOOPS_H

enum { LOOPS_MOST = 64 };

struct loops;

/* Starts them; NULL for none. What fails ends the program. loops_stop takes NULL, too. */
struct loops *loops_start(unsigned count);
void loops_stop(struct loops *loops);

/* How many turns all of them have made so far, also for the children of the process that started them. */
double loops_turns(const struct loops *loops);

#endif
