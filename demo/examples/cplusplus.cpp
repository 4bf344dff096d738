/*
 * C++: the guards of the standard library over locks that all hosts share.
 *
 *     c++ -std=c++17 cplusplus.cpp -o cplusplus $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./cplusplus
 */
#include <dibs.hpp>

#include <cstdint>
#include <iostream>
#include <mutex>
#include <stdexcept>

using namespace std::chrono_literals;

namespace {

/* What the lock protects: it refuses a fence that is smaller than the largest it has seen. */
class storage {
  public:
    void write(std::uint64_t fence, int value)
    {
        if (fence < seen_)
            throw std::runtime_error("a later holder was here");
        seen_ = fence;
        value_ = value;
    }

  private:
    std::uint64_t seen_ = 0;
    int value_ = 0;
};

void transfer(dibs::mutex &from, dibs::mutex &to)
{
    const auto both = dibs::lock(from, to); /* in whatever order others name them: no deadlock */

    std::cout << "both accounts are ours\n";
}

bool transfer_soon(dibs::mutex &from)
{
    std::unique_lock lock(from, 5s); /* waits for so long at the most */

    return lock.owns_lock();
}

void store(dibs::mutex &m, storage &where)
{
    dibs::guard lock(m);

    where.write(lock.fence(), 25);
    lock.release(); /* throws if the lock was lost; without it the destructor unlocks, and tells nobody */
    std::cout << "stored\n";
}

} // namespace

int main()
{
    try {
        dibs::runtime rt(dibs::config().lease(10s).label("example").on_event(
            [](const dibs_event &event) { std::cerr << event.detail << '\n'; }));
        dibs::mutex alice(rt, "account:alice"), bob(rt, "account:bob");
        storage where;

        transfer(alice, bob);
        std::cout << (transfer_soon(alice) ? "alice's account was ours\n" : "alice's account is taken\n");
        store(alice, where);
    } catch (const std::system_error &error) {
        std::cerr << (error.code() == dibs::errc::lost ? "lost: " : "failed: ") << error.what() << '\n';
        return 1;
    }
}
