/* What the tests of the C++ headers share. Each is a program of one file: PROGRAM URL. */
#ifndef DIBS_TEST_CPP_SUPPORT_HPP
#define DIBS_TEST_CPP_SUPPORT_HPP

#include <dibs.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using std::chrono::steady_clock;

namespace {

const char *url;
std::atomic<int> failures{0};

void begin_test(int argc, char **argv)
{
    if (argc != 2)
        std::exit(64);
    url = argv[1];
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
}

void check(bool right, const char *what, int line)
{
    if (!right) {
        std::printf("line %d: not so: %s\n", line, what);
        failures++;
    }
}

#define CHECK(condition) check(static_cast<bool>(condition), #condition, __LINE__)

/*
 * A command may take long: after a hundred thousand tasks have ended, the next allocation puts together what they
 * freed, which takes a second on a busy machine and counts as time of the command that allocates.
 */
dibs::config configuration()
{
    return dibs::config().url(url).command_timeout(10s);
}

/* The code with which the function threw, and what it said; without a code if it did not throw. */
struct thrown {
    std::error_code code;
    std::string what;
};

template <class Function> thrown error_of(Function function)
{
    try {
        function();
    } catch (const std::system_error &error) {
        return {error.code(), error.what()};
    }
    return {};
}

#define CHECK_THROWS(error, expression) CHECK(error_of([&] { expression; }).code == (error))

/* What run_cases() calls with the runtime, in the order of the file: CASE(name, dibs::runtime &rt) { ... } */
std::vector<void (*)(dibs::runtime &)> cases;

#define CASE(name, parameter)                                                                                          \
    void name(parameter);                                                                                              \
    [[maybe_unused]] const bool name##_is_a_case = (cases.push_back(name), true);                                      \
    void name(parameter)

void run_cases(dibs::runtime &rt)
{
    for (const auto &run : cases)
        run(rt);
}

template <class Function> void in_another_thread(Function function)
{
    std::thread(function).join();
}

/* The store in memory tells of no change: a loss is noticed by the next renewal, after a third of the usual 30 s. */
template <class Condition> bool becomes(Condition condition)
{
    const auto limit = steady_clock::now() + 30s;

    while (!condition()) {
        if (steady_clock::now() >= limit)
            return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

} // namespace

#endif
