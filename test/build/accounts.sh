# The core of the test suite under the smallest access rule that doc/ACCOUNTS.md has for one server.
# Builds: helpers integration/rights_test integration/reentrancy_test integration/waiting_test integration/fair_test
# Builds: integration/queue_test integration/renew_test integration/restart_test integration/tracking_own_test
# Builds: integration/force_test integration/thread_exit_test
set -u
. "$DIBS_TOP/test/support/tap.sh"

programs='reentrancy waiting fair queue renew restart tracking_own force thread_exit'

run() {
    DIBS_TEST_ACL='One server' CMOCKA_MESSAGE_OUTPUT=STDOUT "$DIBS_BUILD/test/integration/$1_test"
}

# The programs would pass as well if they did not use the account.
uses_the_account() {
    DIBS_TEST_ACL='One server' DIBS_ONLY='the_environment_names_the_account_of_a_test_server' "$DIBS_BUILD/test/integration/rights_test"
}

# shellcheck disable=SC2086
set -- $programs
tap_plan $(($# + 1))
tap "servers are used under that rule" uses_the_account
for program in "$@"; do
    tap "$program under that rule" run "$program"
done
tap_end
