/* Replaces the compiler's header in the simulation's build: at each atomic operation another thread may run. */
#include_next <stdatomic.h>

#ifndef SIM_STDATOMIC_H
#define SIM_STDATOMIC_H

void sim_point(void);

#undef atomic_load
#define atomic_load(object) (sim_point(), atomic_load_explicit(object, memory_order_seq_cst))
#undef atomic_store
#define atomic_store(object, value) (sim_point(), atomic_store_explicit(object, value, memory_order_seq_cst))
#undef atomic_exchange
#define atomic_exchange(object, value) (sim_point(), atomic_exchange_explicit(object, value, memory_order_seq_cst))
#undef atomic_fetch_add
#define atomic_fetch_add(object, value) (sim_point(), atomic_fetch_add_explicit(object, value, memory_order_seq_cst))
#undef atomic_fetch_sub
#define atomic_fetch_sub(object, value) (sim_point(), atomic_fetch_sub_explicit(object, value, memory_order_seq_cst))
#undef atomic_fetch_or
#define atomic_fetch_or(object, value) (sim_point(), atomic_fetch_or_explicit(object, value, memory_order_seq_cst))
#undef atomic_fetch_and
#define atomic_fetch_and(object, value) (sim_point(), atomic_fetch_and_explicit(object, value, memory_order_seq_cst))
#undef atomic_compare_exchange_strong
#define atomic_compare_exchange_strong(object, expected, value)                                                        \
    (sim_point(),                                                                                                      \
     atomic_compare_exchange_strong_explicit(object, expected, value, memory_order_seq_cst, memory_order_seq_cst))
#undef atomic_compare_exchange_weak
#define atomic_compare_exchange_weak(object, expected, value)                                                          \
    (sim_point(),                                                                                                      \
     atomic_compare_exchange_weak_explicit(object, expected, value, memory_order_seq_cst, memory_order_seq_cst))

#endif
