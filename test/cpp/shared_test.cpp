/* The shared locks of dibs.hpp. shared_test URL: on the store of that URL; exit status 0 if all is right. */
#include "support.hpp"

#include <shared_mutex>

namespace {

static_assert(noexcept(std::declval<dibs::shared_mutex &>().unlock_shared()));
static_assert(!std::is_copy_constructible_v<dibs::shared_mutex> && !std::is_move_constructible_v<dibs::shared_mutex>);
static_assert(!std::is_copy_constructible_v<dibs::semaphore> && !std::is_move_constructible_v<dibs::semaphore>);

template <class Lock> bool elsewhere(Lock lock)
{
    bool had = false;

    in_another_thread([&] { had = lock(); });
    return had;
}

bool can_read(dibs::shared_mutex &m)
{
    return elsewhere([&] { return std::shared_lock(m, std::try_to_lock).owns_lock(); });
}

bool can_write(dibs::shared_mutex &m)
{
    return elsewhere([&] { return std::unique_lock(m, std::try_to_lock).owns_lock(); });
}

CASE(readers_are_together_and_a_writer_is_alone, dibs::runtime &rt)
{
    dibs::shared_mutex m(rt, "shared");

    {
        std::shared_lock reader(m);
        CHECK(m.hold().shared);
        CHECK(can_read(m) && !can_write(m));
        CHECK(rt.query_sharers("shared").size() == 1 && rt.query_sharers("shared")[0].token == m.token());
        std::shared_lock again(m);
        CHECK(m.hold().count == 2);
        CHECK_THROWS(dibs::errc::busy, m.lock());
        CHECK(!m.try_lock());
        m.check();
    }
    {
        std::unique_lock writer(m);
        CHECK(!m.hold().shared && m.fence() > 0);
        CHECK(!can_read(m) && !can_write(m));
        std::shared_lock beside(m); /* a re-entry, which stays alone */
        CHECK(!can_read(m) && m.hold().count == 2);
    }
    CHECK(can_write(m));
    CHECK_THROWS(dibs::errc::not_held, m.check());
}

CASE(guards_tell_of_a_loss, dibs::runtime &rt)
{
    dibs::shared_mutex m(rt, "shared:guard");
    dibs::semaphore permits(rt, "permit:guard", 1);

    {
        dibs::guard writer(m);
        CHECK(!writer.hold().shared && !can_read(m));
        dibs::guard permit(permits);
        CHECK(permit.hold().shared && !elsewhere([&] { return permits.try_acquire(); }));
        permit.release();
        CHECK(elsewhere([&] { return permits.try_acquire_for(10s); }));
    }
    CHECK(permits.try_acquire_for(10s) && m.try_lock());
    {
        dibs::guard permit(permits, std::adopt_lock), writer(m, std::adopt_lock);
        CHECK(rt.force_unlock("permit:guard"));
        CHECK_THROWS(dibs::errc::lost, permit.release());
        writer.release();
    }
    dibs::shared_guard reader(m);
    CHECK(reader.hold().shared && can_read(m) && !can_write(m));
    reader.release();
    CHECK(can_write(m) && m.try_lock_shared());
    dibs::shared_guard adopted(m, std::adopt_lock);
    CHECK(rt.force_unlock("shared:guard"));
    CHECK_THROWS(dibs::errc::lost, adopted.release());
}

CASE(waits_have_an_end, dibs::runtime &rt)
{
    dibs::shared_mutex m(rt, "shared:waits");
    std::unique_lock writer(m);

    in_another_thread([&] {
        CHECK(!std::shared_lock(m, 20ms) && !std::shared_lock(m, steady_clock::now() + 20ms));
        CHECK(!std::unique_lock(m, 20ms));
    });
    writer.unlock();
    CHECK(std::shared_lock(m, 10s).owns_lock());
}

CASE(no_more_than_the_permits, dibs::runtime &rt)
{
    dibs::semaphore s(rt, "permits", 2);
    const auto has_another = [&] {
        return elsewhere([&] {
            const bool had = s.try_acquire();
            if (had)
                s.release();
            return had;
        });
    };

    s.acquire();
    s.check();
    CHECK(s.hold().shared && has_another());
    in_another_thread([&] {
        s.acquire();
        CHECK(!has_another());
        CHECK(!elsewhere([&] { return s.try_acquire_for(20ms); }));
        CHECK(!elsewhere([&] { return s.try_acquire_until(steady_clock::now() + 20ms); }));
        s.release();
    });
    CHECK(becomes(has_another)); /* those that waited may leave the queue a little later */
    s.acquire();
    CHECK(s.hold().count == 2); /* one permit, twice */
    s.release();
    s.release();
    CHECK_THROWS(dibs::errc::not_held, s.check());
    CHECK_THROWS(dibs::errc::invalid, dibs::semaphore(rt, "permits", 0));
    CHECK_THROWS(dibs::errc::invalid, dibs::semaphore(rt, "", 1));
}

} // namespace

int main(int argc, char **argv)
{
    begin_test(argc, argv);
    {
        dibs::runtime rt(configuration().label("shared_test"));
        run_cases(rt);
    }
    return failures ? 1 : 0;
}
