/* Declarations for the pieces of code in the documents, which are compiled but not linked: see snippets.py. */
#ifndef DIBS_TEST_SNIPPET_H
#define DIBS_TEST_SNIPPET_H

#include <dibs.h>
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __cplusplus
#include <dibs.hpp>

using namespace std::chrono_literals;

#ifdef __cpp_impl_coroutine
#include <coroutine>

/* What a program has of its own to run coroutines. */
struct job_of_yours {
    struct promise_type {
        job_of_yours get_return_object();
        std::suspend_never initial_suspend() noexcept;
        std::suspend_never final_suspend() noexcept;
        void return_void();
        void unhandled_exception();
    };
};
#endif
#endif

void anything(void);
void die(const char *why);
void write_report(void);
void move_money(void);
int update_stock(const char *statement, uint64_t fence);

#endif
