#include "support/fake_sentinel.h"

#include "support/test.h"

#define QUESTION "SENTINEL GET-MASTER-ADDR-BY-NAME"
#define EVENT(kind, size, number) "*3\r\n$" size "\r\n" kind "\r\n$14\r\n+switch-master\r\n:" number "\r\n"

void fake_sentinel_start(fake_sentinel *f)
{
    memset(f, 0, sizeof *f);
    f->redis = fake_redis_start(true);
    snprintf(f->url, sizeof f->url, "redis-sentinel://127.0.0.1:%d/mymaster", fake_redis_port(f->redis));
    fake_redis_answer(f->redis, QUESTION, "*-1\r\n");
    fake_redis_answer(f->redis, "SENTINEL SENTINELS", "*0\r\n");
    fake_redis_answer(f->redis, "SUBSCRIBE", EVENT("subscribe", "9", "1"));
    fake_redis_answer(f->redis, "UNSUBSCRIBE", EVENT("unsubscribe", "11", "0"));
}

void fake_sentinel_stop(fake_sentinel *f)
{
    fake_redis_stop(f->redis);
}

void fake_sentinel_name(fake_sentinel *f, int port)
{
    char number[16], *answer = f->answers[f->count++];

    assert_true(f->count <= sizeof f->answers / sizeof *f->answers);
    int digits = snprintf(number, sizeof number, "%d", port);
    snprintf(answer, sizeof *f->answers, "*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n", digits, number);
    fake_redis_answer(f->redis, QUESTION, answer);
}

void fake_sentinel_epoch(fake_sentinel *f, int epoch)
{
    char *answer = f->epochs[f->epoch_count++];

    assert_true(f->epoch_count <= sizeof f->epochs / sizeof *f->epochs && epoch >= 0 && epoch <= 9);
    snprintf(answer, sizeof *f->epochs, "*2\r\n$12\r\nconfig-epoch\r\n$1\r\n%d\r\n", epoch);
    fake_redis_answer(f->redis, "SENTINEL MASTER", answer);
}

void fake_sentinel_know(fake_sentinel *f, const fake_sentinel *one, const fake_sentinel *two)
{
    const fake_sentinel *both[] = {one, two};
    size_t used = (size_t)snprintf(f->others, sizeof f->others, "*2\r\n");

    for (size_t i = 0; i < 2; i++)
        used += (size_t)snprintf(f->others + used, sizeof f->others - used,
                                 "*4\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n$5\r\n%05d\r\n",
                                 fake_redis_port(both[i]->redis));
    fake_redis_answer(f->redis, "SENTINEL SENTINELS", f->others);
}

void fake_sentinel_tell(fake_sentinel *f, const char *master)
{
    char message[128], event[256];

    int size = snprintf(message, sizeof message, "%s 127.0.0.1 1 127.0.0.1 2", master);
    snprintf(event, sizeof event, "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%d\r\n%s\r\n", size, message);
    fake_redis_publish(f->redis, event);
}

unsigned fake_sentinel_asked(fake_sentinel *f)
{
    return fake_redis_count(f->redis, QUESTION);
}

void fake_sentinel_await_asked(fake_sentinel *f, unsigned count)
{
    fake_redis_await(f->redis, QUESTION, count);
}
