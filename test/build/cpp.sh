# dibs.hpp and dibs_task.hpp: they are clean for both compilers in both standards, and do what they promise, in memory and on a
# server. Also DIBS_GUARD, as the compilers see it.
# Needs: gcc c++ clang
# Builds: lib
# Priority: low
set -u
. "$DIBS_TOP/test/support/tap.sh"
. "$DIBS_TOP/test/support/server.sh"
warnings='-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Werror'

# The static library wants what it is made of; where that is of no concern, the flags are empty.
libraries() {
    PKG_CONFIG=${PKG_CONFIG:-pkg-config}
    for library in hiredis hiredis_ssl libssl libcrypto; do
        ! "$PKG_CONFIG" --exists "$library" 2>/dev/null || "$PKG_CONFIG" --libs "$library"
    done
}

# compile COMPILER STANDARD TEST
compile() {
    # shellcheck disable=SC2046,SC2086
    "$1" -std="$2" -O1 $warnings -pthread "-I$DIBS_TOP/include" -o "$tmp/$1-$2-$3" "$DIBS_TOP/test/cpp/$3.cpp" \
        "$DIBS_TOP/lib/libdibs.a" $(libraries)
}

# Two files of one program include the header, without exceptions and run-time types; an error then ends the program.
without_exceptions() {
    printf '#include <dibs.hpp>\nint other() { return dibs::category().name()[0]; }\n' >"$tmp/other.cc"
    printf '#include <dibs.hpp>\nint other();\nint main() { dibs::runtime rt; dibs::mutex a(rt, "a"); a.lock();\n' >"$tmp/one.cc"
    printf 'a.unlock(); if (other() == 0) a.check(); dibs::mutex(rt, ""); }\n' >>"$tmp/one.cc"
    # shellcheck disable=SC2046,SC2086
    "$1" -std=c++17 -fno-exceptions -fno-rtti $warnings -pthread "-I$DIBS_TOP/include" -o "$tmp/none" "$tmp/one.cc" \
        "$tmp/other.cc" "$DIBS_TOP/lib/libdibs.a" $(libraries)
    status=0
    (ulimit -c 0 && DIBS_URL=mem: "$tmp/none") || status=$?
    [ "$status" = 134 ]
}

# A lock whose guard was moved to another thread stays held: an assertion says so, or the statistics and an event.
moved_guard() {
    cat >"$tmp/moved.cc" <<'END'
#include <dibs.hpp>
#include <atomic>
#include <chrono>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

int main()
{
    std::atomic<bool> told{false};
    dibs::runtime rt(dibs::config().on_event([&](const dibs_event &e) { told = told || e.kind == DIBS_EVENT_NOT_HELD; }));
    dibs::mutex m(rt, "m");
    std::unique_lock held(m);
    dibs::mutex other(rt, "other");
    std::unique_lock also(other);

    pid_t child = fork();
    int status = -1;
    if (child == 0) {
        m.unlock(); // what the parent holds: that is no mistake
        other.unlock();
        _exit(rt.stats().not_held == 0 ? 0 : 1);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        return 2;
    std::thread([moved = std::move(held)] {}).join();
    for (int i = 0; i < 20000 && !told; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    m.check();
    return told && rt.stats().not_held == 1 ? 0 : 1;
}
END
    for flag in DEBUG NDEBUG; do
        # shellcheck disable=SC2046,SC2086
        "$1" -std=c++17 -D$flag $warnings -pthread "-I$DIBS_TOP/include" -o "$tmp/$flag" "$tmp/moved.cc" \
            "$DIBS_TOP/lib/libdibs.a" $(libraries)
    done
    DIBS_URL=mem: "$tmp/NDEBUG"
    status=0
    (ulimit -c 0 && DIBS_URL=mem: "$tmp/DEBUG") 2>"$tmp/said" || status=$?
    cat "$tmp/said"
    [ "$status" = 134 ]
    grep -q 'does not hold the lock' "$tmp/said"
}

# guard_warns COMPILER: a guard whose status nobody looks at is warned of, the same guard with a look is not.
guard_warns() {
    printf '#include <dibs.h>\nint f(dibs_runtime *rt);\nint f(dibs_runtime *rt) { DIBS_GUARD(rt, "a", s);\n' >"$tmp/guard.c"
    cp "$tmp/guard.c" "$tmp/looks.c"
    echo 'return 0; }' >>"$tmp/guard.c"
    echo 'return s == DIBS_OK; }' >>"$tmp/looks.c"
    # shellcheck disable=SC2086
    "$1" -std=c11 $warnings -fsyntax-only "-I$DIBS_TOP/include" "$tmp/looks.c"
    # shellcheck disable=SC2086
    if "$1" -std=c11 $warnings -fsyntax-only "-I$DIBS_TOP/include" "$tmp/guard.c"; then return 1; fi
}

# ignored_lock_warns COMPILER STANDARD LANGUAGE: the compiler warns where the result of locking, opening or checking is
# ignored.
ignored_lock_warns() {
    for call in 'dibs_lock(rt, "a")' 'dibs_trylock(rt, "a")' 'dibs_timedlock(rt, "a", 1)' 'dibs_lock_with(rt, "a", 1, 0)' \
        'dibs_open(&rt, 0)' 'dibs_check(rt, "a")' 'dibs_task_enter((dibs_task *)(void *)rt)' \
        'dibs_lock_begin((dibs_task *)(void *)rt, "a", 1, 0, 0, 0)'; do
        printf '#include <dibs.h>\nint f(dibs_runtime *rt);\nint f(dibs_runtime *rt) { return %s == DIBS_OK; }\n' "$call" >"$tmp/looks.$3"
        sed -e 's/return //' -e 's/ == DIBS_OK; }/; return 0; }/' "$tmp/looks.$3" >"$tmp/ignores.$3"
        # shellcheck disable=SC2086
        "$1" -std="$2" $warnings -c -o "$tmp/looks.o" "-I$DIBS_TOP/include" "$tmp/looks.$3"
        # shellcheck disable=SC2086
        if "$1" -std="$2" $warnings -c -o "$tmp/ignores.o" "-I$DIBS_TOP/include" "$tmp/ignores.$3"; then return 1; fi
    done
}

# says_which_standard COMPILER: the first error of an older standard names the one that is needed.
says_which_standard() {
    printf '#include <dibs.hpp>\n' >"$tmp/old.cc"
    if "$1" -std=c++14 -fsyntax-only "-I$DIBS_TOP/include" "$tmp/old.cc" 2>"$tmp/said"; then return 1; fi
    grep -m 1 'error' "$tmp/said" | grep 'needs C++17'
}

# guard_wants_braces COMPILER LANGUAGE: a guard cannot be all that an "if" has.
guard_wants_braces() {
    printf '#include <dibs.h>\nvoid f(dibs_runtime *rt, int want) { if (want) DIBS_GUARD(rt, "a", s); }\n' >"$tmp/if.$2"
    if "$1" -fsyntax-only "-I$DIBS_TOP/include" "$tmp/if.$2"; then return 1; fi
    sed -e 's/) DIBS/) { DIBS/' -e 's/}$/} }/' "$tmp/if.$2" >"$tmp/braces.$2"
    "$1" -fsyntax-only "-I$DIBS_TOP/include" "$tmp/braces.$2"
}

tap_plan 54
server_start || exit 1
for compiler in g++ clang++; do
    for standard in c++17 c++20; do
        for test in mutex_test shared_test task_test; do
            tap "$compiler, $standard: $test compiles" compile "$compiler" "$standard" "$test"
            tap "$compiler, $standard: $test in memory" "$tmp/$compiler-$standard-$test" mem:
            tap "$compiler, $standard: $test on a server" "$tmp/$compiler-$standard-$test" "$server_url"
        done
    done
    tap "$compiler, without exceptions" without_exceptions "$compiler"
    tap "$compiler, c++11: an ignored lock is warned of" ignored_lock_warns "$compiler" c++11 cc
    tap "$compiler, c++17: an ignored lock is warned of" ignored_lock_warns "$compiler" c++17 cc
    tap "$compiler: a guard that was moved to another thread" moved_guard "$compiler"
    tap "$compiler, c++14: an error names C++17" says_which_standard "$compiler"
    tap "$compiler, C++: a guard without braces is an error" guard_wants_braces "$compiler" cc
done
for compiler in gcc clang; do
    tap "$compiler: an ignored lock is warned of" ignored_lock_warns "$compiler" c11 c
    tap "$compiler: a guard's status must be looked at" guard_warns "$compiler"
    tap "$compiler: a guard without braces is an error" guard_wants_braces "$compiler" c
done
tap_end
