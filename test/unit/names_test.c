/* dibs__names, a set of names. */
#include <stdio.h>

#include "core/names.h"
#include "support/test.h"

static void a_set_has_each_name_once(void **state)
{
    struct dibs__names names = {.count = 0};
    char name[32];

    (void)state;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 5000; i++) {
            snprintf(name, sizeof name, "name%d", i);
            assert_true(dibs__names_add(&names, name));
        }
    assert_int_equal(names.count, 5000);
    for (size_t i = 0; i < names.count; i++) {
        snprintf(name, sizeof name, "name%zu", i);
        assert_string_equal(names.all[i], name);
    }
    dibs__names_free(&names);
}

static void an_empty_set_of_names_can_be_freed(void **state)
{
    struct dibs__names names = {.count = 0};

    (void)state;
    dibs__names_free(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_has_each_name_once),
        cmocka_unit_test(an_empty_set_of_names_can_be_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
