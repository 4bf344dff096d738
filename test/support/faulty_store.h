/*
 * A store in memory that fails when the faults say so, counts what it is asked,
 * and can keep its answers back. A runtime gets it by settings.open_store =
 * faulty_store_open, after faults_init.
 */
#ifndef DIBS_TEST_FAULTY_STORE_H
#define DIBS_TEST_FAULTY_STORE_H

#include "support/faults.h"

dibs_status faulty_store_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error);

#endif
