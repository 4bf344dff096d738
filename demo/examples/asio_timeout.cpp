/*
 * Coroutines with Asio: each waits for a lock without a thread, until a timer cancels it.
 *
 *     c++ -std=c++20 asio_timeout.cpp -o asio_timeout -pthread $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./asio_timeout sku:25 sku:26
 *
 * To see a time-out:  redis-cli SET lock:sku:26 somebody PX 60000
 */
#include <asio.hpp>
#include <dibs.hpp>
#include <unistd.h>

#include <iostream>

using namespace std::chrono_literals;

namespace {

/* From a completion of dibs to whatever Asio is told to do with it, such as asio::use_awaitable. */
template <class Token> auto async_lock(dibs::task &task, dibs::queue &queue, const std::string &name, Token &&token)
{
    return asio::async_initiate<Token, void(std::error_code, dibs::task_guard)>(
        [&](auto handler) {
            task.begin_lock(queue, name,
                            [h = std::move(handler)](const dibs_completion &done, dibs::task_guard lock) mutable {
                                std::move(h)(std::error_code(done.status, dibs::category()), std::move(lock));
                            });
        },
        token);
}

template <class Token> auto async_release(dibs::task_guard &lock, Token &&token)
{
    return asio::async_initiate<Token, void(std::error_code)>(
        [&](auto handler) {
            lock.begin_release([h = std::move(handler)](const dibs_completion &done) mutable {
                std::move(h)(std::error_code(done.status, dibs::category()));
            });
        },
        token);
}

asio::awaitable<void> sell(dibs::runtime &rt, dibs::queue &queue, std::string sku)
{
    asio::steady_timer timer(co_await asio::this_coro::executor, 300ms);
    std::stop_source stop; /* outlives the coroutine in the timer's function, as a reference to the task would not */
    dibs::task task(rt, stop.get_token());

    timer.async_wait([stop](std::error_code aborted) mutable {
        if (!aborted)
            stop.request_stop();
    });
    try {
        dibs::task_guard lock = co_await async_lock(task, queue, sku, asio::use_awaitable);
        lock.check(); /* before what can't be undone */
        std::cout << sku << ": sold, with fence " << lock.fence() << '\n';
        co_await async_release(lock, asio::use_awaitable);
    } catch (const std::system_error &error) {
        std::cout << sku << ": " << (error.code() == dibs::errc::cancelled ? "timed out" : error.what()) << '\n';
    }
}

/* Hands out completions whenever there are some. The descriptor is the queue's, so Asio gets one of its own to close.
 */
asio::awaitable<void> dispatch(dibs::queue &queue)
{
    asio::posix::stream_descriptor fd(co_await asio::this_coro::executor, ::dup(queue.fd()));

    for (;;) {
        co_await fd.async_wait(fd.wait_read, asio::use_awaitable);
        queue.dispatch();
    }
}

asio::awaitable<void> sell_all(dibs::runtime &rt, dibs::queue &queue, asio::io_context &io, int count, char **skus)
{
    auto left = std::make_shared<int>(count);

    for (int i = 0; i < count; i++)
        asio::co_spawn(io, sell(rt, queue, skus[i]), [left, &io](std::exception_ptr) {
            if (--*left == 0)
                io.stop();
        });
    co_await dispatch(queue);
}

} // namespace

int main(int argc, char **argv)
{
    try {
        dibs::runtime rt;
        dibs::queue queue;
        asio::io_context io(1);

        asio::co_spawn(io, sell_all(rt, queue, io, argc - 1, argv + 1), asio::detached);
        io.run();
    } catch (const std::system_error &error) {
        std::cerr << "failed: " << error.what() << '\n';
        return 1;
    }
}
