/*
 * Static probes (USDT) of the provider "dibs", for bpftrace, perf and SystemTap. A probe that nobody watches is one
 * no-op instruction. Without <sys/sdt.h> there are no probes, and their arguments are not even evaluated.
 *
 *     acquire__start  name, wait in ms (-1: for ever)     a thread that does not hold the lock wants it
 *     acquire__end    name, dibs_status                   that call returns
 *     grant           name, fence                         the store granted the lock to a thread
 *     handoff         name, fence                         a thread got the lock from another of this process
 *     renew           name, lease in ms                   the store renewed the lease
 *     lost            name, fence                         the lease ended under its holder
 *     release         name, fence                         a thread gave up its last hold
 */
#ifndef DIBS_BASE_PROBE_H
#define DIBS_BASE_PROBE_H

#if defined(__has_include) && !defined(DIBS_WITHOUT_PROBES)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#ifdef __clang__
#pragma clang diagnostic ignored "-Wgnu-zero-variadic-macro-arguments" /* of the macros of that header */
#endif
#define DIBS__PROBE(probe, name, number)                                                                               \
    do {                                                                                                               \
        const char *probed_name_ = (name); /* an array has no size that the macros could take */                       \
        DTRACE_PROBE2(dibs, probe, probed_name_, number);                                                              \
    } while (0)
#endif
#endif

#ifndef DIBS__PROBE
#define DIBS__PROBE(probe, name, number) ((void)0)
#endif

#endif
