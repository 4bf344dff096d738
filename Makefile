# make            the library (lib/), the command (build/dibs) and the races (build/demo)
# make demos      the race and the programs of demo/examples (build/demo/examples/)
# make test       the tests that tell whether the library works here; ALL=1 for all tests; ONLY="word..." for the programs
#                 whose names contain one of the words
# make check FILE=src/core/turn.c   the test programs whose lines a file is, plain; EVERY=1 for all that run one
# make test-platforms   the suite on Debian 13 with Redis and with Valkey, in a root folder that it makes in a cache folder
#                 with debootstrap; as root; ONLY="word..." as above (test/platforms/run says what else there is)
# make demo       runs the demo
# make bench      builds and runs the benchmarks: tables, and CSV files and plots in bench/out; takes some 15 minutes;
#                 TABLES="pair..." for some of them (bench/run says which there are)
# make peers      compares with the locks of other libraries, which it installs into build/peers; takes 8 minutes;
#                 INTO=doc/PERFORMANCE.md puts the table there
# make compare-run   what happens in twenty situations with dibs run, and with flock(1) and etcdctl lock where these are
#                 installed; takes 6 minutes; INTO=doc/SERVICES.md puts the table there
# make fuzz       the parsers under libFuzzer, each for FUZZ_SECONDS=60; needs clang
# make coverage   the lines that the tests reach, by file and folder; fails where a folder has less than 90 %
# make analysis   clang-tidy, cppcheck, clang-format, and clang's thread-safety analysis
# make valgrind   the unit tests, and those of ONLY="word...", under valgrind
# make soak       random faults for MINUTES=1; SEED=n plans the same ones again, FAULTS=kind,kind only those;
#                 TOPOLOGY=quorum: on five masters; TOPOLOGY=sentinel: with failovers;
#                 TOPOLOGY=cluster: slots that move, and failovers
# make bugs       whether the tests notice the bugs of test/fault/bugs.md, each put into a copy; takes 20 minutes
# make mutants    how many of N=100 small slips, drawn by SEED=1, the tests notice; ONLY="word..." for the sources whose
#                 names contain one of the words; PROGRAMS="word..." for the test programs alone whose names do; AGAIN=1
#                 for what survived last time alone; takes hours
# make install    to PREFIX (/usr/local) under DESTDIR; make uninstall removes the same (src/package/package.mk says where
#                 each thing goes)
# make dist       build/dibs-VERSION.tar.gz: the sources of the last commit
# make deb        Debian packages for this system, in build/deb; DEBFULLNAME and DEBEMAIL say who makes them
# make test-32bit the unit tests on Debian 13 of i386, in a root folder as above; ONLY="word..." for others
# make abi-baseline   keeps the binary interface for the test of the next release (src/package/abi.sh)
# make clean
#
# Variables: CC, CFLAGS, CPPFLAGS, LDFLAGS, PREFIX, LIBDIR, INCLUDEDIR, BINDIR, MANDIR, ..., DESTDIR, PKG_CONFIG, and
#   SANITIZE=address,undefined   or thread; everything then goes to a build folder of its own
#   BUILD=DIR                    builds there, the library in DIR/lib
#   TLS=                         without TLS, which is built in where pkg-config knows hiredis_ssl
#   HIREDIS_LINK=shared          the shared library needs hiredis' shared one, instead of having the static one inside
#   CLI_LINK=shared              the command needs the shared library, instead of having the static one inside
# "sh demo/run" and "sh test/run" install what the build needs and call make.

PREFIX     ?= /usr/local
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
CFLAGS     ?= -O2 -g
PKG_CONFIG ?= pkg-config
SANITIZE   ?=
BUILD      ?= build$(addprefix /,$(subst $(comma),-,$(SANITIZE)))
comma      := ,
LIB        := $(if $(filter build,$(BUILD)),lib,$(BUILD)/lib)
$(if $(word 2,$(BUILD)),$(error BUILD must not contain blanks: $(BUILD)))

.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all lib cli race demos units helpers rig replays peer tests benches fuzzers test check test-platforms test-32bit demo bench peers fuzz analysis coverage valgrind soak bugs mutants install uninstall clean

all: lib cli race

# ---------------------------------------------------------------- platform

version_of = $(shell awk '$$2 == "DIBS_VERSION_$(1)" { print $$3 }' include/dibs.h)
MAJOR     := $(call version_of,MAJOR)
VERSION   := $(MAJOR).$(call version_of,MINOR).$(call version_of,PATCH)
STATIC    := libdibs.a

ifeq ($(shell uname -s),Darwin)
PLATFORM     := -D_DARWIN_C_SOURCE
SHARED       := libdibs.dylib
SHARED_MAJOR := libdibs.$(MAJOR).dylib
SHARED_FULL  := libdibs.$(VERSION).dylib
SHARED_FLAGS := -dynamiclib -install_name $(LIBDIR)/$(SHARED_MAJOR) -current_version $(VERSION)
else
PLATFORM     := -D_GNU_SOURCE
DL_LIBS      := -ldl # before glibc 2.34
SHARED       := libdibs.so
SHARED_MAJOR := libdibs.so.$(MAJOR)
SHARED_FULL  := libdibs.so.$(VERSION)
SYMBOL_MAP   := src/package/dibs.map
# Never unloaded: a thread that has used the library runs a function of it at its end, whenever that is.
SHARED_FLAGS := -shared -Wl,-soname,$(SHARED_MAJOR) -Wl,-z,nodelete $(if $(SANITIZE),,-Wl,-z,defs) \
                -Wl,--version-script=$(SYMBOL_MAP)
endif

# hiredis' headers are included as <hiredis/...>; some installations name only the folder below.
has            = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo yes)
query          = $(shell $(PKG_CONFIG) $(1) 2>/dev/null)
hiredis_dirs  := $(patsubst -I%,%,$(call query,--cflags-only-I hiredis))
hiredis_dirs  += $(filter-out /usr/include,$(patsubst %/hiredis,%,$(filter %/hiredis,$(hiredis_dirs))))
# TLS=yes or empty: whether hiredis' part for TLS is there, unless the caller says so.
ifeq ($(origin TLS),undefined)
TLS           := $(call has,hiredis_ssl libssl libcrypto)
endif
HIREDIS       := $(if $(TLS),hiredis_ssl libssl libcrypto) hiredis
HIREDIS_CFLAGS := $(addprefix -isystem ,$(hiredis_dirs)) $(call query,--cflags-only-other $(HIREDIS))
HIREDIS_CFLAGS += $(if $(TLS),-DDIBS_WITH_TLS)
HIREDIS_LIBS  := $(call query,--libs $(HIREDIS))
# The shared library has a hiredis of its own inside, which nobody else sees, where a static one is installed: hiredis' symbols
# have no versions, so the shared one of another version that a program has would take the place of the one meant here.
HIREDIS_LINK  ?= static
hiredis_parts := $(filter hiredis%,$(HIREDIS))
hiredis_libdir := $(call query,--variable=libdir hiredis)
archive_of     = $(wildcard $(if $(wildcard $(hiredis_libdir)/lib$(1).*),$(hiredis_libdir)/lib$(1).a,$(shell $(CC) -print-file-name=lib$(1).a)))
HIREDIS_ARCHIVES := $(if $(SYMBOL_MAP),$(if $(filter static,$(HIREDIS_LINK)),$(foreach part,$(hiredis_parts),$(call archive_of,$(part)))))
HIREDIS_ARCHIVES := $(if $(filter $(words $(hiredis_parts)),$(words $(HIREDIS_ARCHIVES))),$(HIREDIS_ARCHIVES))
# Some systems compile what they archive for programs alone, not for libraries.
fits_inside    = $(shell $(CC) -shared -o $(BUILD)/hiredis.so -Wl,--whole-archive $(HIREDIS_ARCHIVES) -Wl,--no-whole-archive 2>/dev/null && echo yes)
SHARED_LIBS    = $(if $(if $(HIREDIS_ARCHIVES),$(fits_inside)),$(HIREDIS_ARCHIVES) $(filter-out $(addprefix -l,$(hiredis_parts)),$(HIREDIS_LIBS)),$(HIREDIS_LIBS))
SQLITE_CFLAGS := $(call query,--cflags sqlite3)
SQLITE_LIBS   := $(call query,--libs sqlite3)
LIBUV_CFLAGS  := $(call query,--cflags libuv)
LIBUV_LIBS    := $(call query,--libs libuv)
# Asio is headers alone; Debian's has no file for pkg-config.
ASIO          := $(firstword $(wildcard $(addsuffix /include/asio.hpp,/usr /usr/local /opt/homebrew)))
# ZooKeeper's library, for one way of the gallery, which is left out where it is missing.
ZOOKEEPER     := $(firstword $(patsubst %/include/zookeeper/zookeeper.h,%,$(wildcard $(addsuffix /include/zookeeper/zookeeper.h,/usr /usr/local /opt/homebrew))))
ZOOKEEPER_CFLAGS := $(if $(ZOOKEEPER),-DDEMO_ZOOKEEPER $(addprefix -isystem ,$(filter-out /usr/include,$(ZOOKEEPER)/include)))
ZOOKEEPER_LIBS := $(if $(ZOOKEEPER),$(addprefix -L,$(filter-out /usr/lib,$(ZOOKEEPER)/lib)) -lzookeeper_mt)
ZOOKEEPER_OBJECT := $(BUILD)/obj/demo/ways/zookeeper.o
CMOCKA_CFLAGS := $(call query,--cflags cmocka)
CMOCKA_LIBS   := $(call query,--libs cmocka)

need_hiredis := $(if $(call has,hiredis),,need_hiredis)
need_cmocka  := $(if $(call has,cmocka),,need_cmocka)
.PHONY: need_hiredis need_cmocka
need_hiredis:
	@echo 'hiredis or pkg-config is missing: "sh demo/run" installs it.' >&2; exit 1
need_cmocka:
	@echo 'cmocka or pkg-config is missing: "sh test/run" installs it.' >&2; exit 1

# ------------------------------------------------------------------- flags

WARNINGS     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion
SANITIZERS   := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer -DDIBS_CHECKED)
ALL_CFLAGS   := -std=c11 $(WARNINGS) -pthread $(SANITIZERS) $(CFLAGS)
ALL_CPPFLAGS := $(PLATFORM) -Iinclude $(CPPFLAGS)
ALL_LDFLAGS  := -pthread $(SANITIZERS) $(LDFLAGS)
COMPILE      := $(CC) $(ALL_CFLAGS) $(ALL_CPPFLAGS) $(HIREDIS_CFLAGS)

# ------------------------------------------------------------------- files

OBJ           := $(BUILD)/obj
objects        = $(patsubst %.c,$(OBJ)/%.o,$(1))
programs       = $(patsubst $(1)/%.c,$(BUILD)/$(2)/%,$(wildcard $(1)/*.c))

SCRIPTS       := $(sort $(wildcard src/redis/scripts/*.lua))
LIB_OBJECTS   := $(call objects,$(sort $(wildcard $(addprefix src/,$(addsuffix /*.c,base redis store store/redis store/quorum store/cluster core api)))))
LIB_OBJECTS   += $(if $(SCRIPTS),$(OBJ)/scripts_lua.o)
# What demos, benchmarks and tests have in common: how to start a server, to leave in order, clocks, plain locks.
COMMON        := $(call objects,$(wildcard test/support/common/*.c))
BENCH_OBJECTS := $(call objects,$(wildcard bench/support/*.c))
BENCH_PARTS   := $(call objects,$(wildcard $(addprefix bench/,$(addsuffix /*.c,contended calls names tasks topologies))))
TEST_OBJECTS  := $(call objects,$(wildcard test/support/*.c))

CLI           := $(BUILD)/dibs
CLI_OBJECTS   := $(call objects,$(sort $(wildcard src/cli/*.c)))
CLI_LINK      ?= static
CLI_LIBRARY   := $(LIB)/$(if $(filter shared,$(CLI_LINK)),$(SHARED),$(STATIC))
DEMOS         := $(call programs,demo,demo)
DEMO_OBJECTS  := $(call objects,$(wildcard demo/race/*.c demo/ways/*.c))
# Examples for which something is missing are left out, and "make demos" says so.
EXAMPLES      := $(call programs,demo/examples,demo/examples)
EXAMPLE_OF_CXX := $(if $(shell command -v $(CXX)),$(patsubst %.cpp,$(BUILD)/%,$(wildcard demo/examples/*.cpp)))
LEFT_OUT      := $(if $(call has,sqlite3),,fence_sql:SQLite) $(if $(call has,libuv),,libuv_server:libuv)
LEFT_OUT      += $(if $(ASIO),,asio_timeout:Asio) $(if $(filter Darwin,$(shell uname -s)),epoll_server:epoll)
EXAMPLES_LEFT_OUT := $(foreach one,$(LEFT_OUT),$(BUILD)/demo/examples/$(firstword $(subst :, ,$(one))))
BENCHES       := $(call programs,bench,bench)
PEER          := $(BUILD)/peers/dibs
UNIT_TESTS    := $(patsubst test/%.c,$(BUILD)/test/%,$(wildcard test/unit/*_test.c))
INTEGRATION   := $(patsubst test/%.c,$(BUILD)/test/%,$(wildcard test/integration/*_test.c))
TEST_PROGRAMS := $(call programs,test/support/prog,test/prog)
FAULT_WORKER  := $(BUILD)/test/fault/worker
FAULT_OBJECTS := $(call objects,$(wildcard test/fault/worker/*.c))
FAULT_SHIM    := $(BUILD)/test/fault/clock_shim.so
TEST_SHIMS    := $(patsubst test/support/shim/%.c,$(BUILD)/test/prog/%.so,$(wildcard test/support/shim/*.c))
FUZZ_SOURCES  := $(wildcard test/fuzz/*_fuzz.c)
FUZZ_SUPPORT  := $(call objects,test/fuzz/puppet.c test/support/resp.c)
FUZZ_OBJECTS  := $(FUZZ_SUPPORT) $(call objects,test/fuzz/replay.c)
FUZZERS       := $(patsubst test/%.c,$(BUILD)/test/%,$(FUZZ_SOURCES))
REPLAYS       := $(patsubst test/%_fuzz.c,$(BUILD)/test/%_replay,$(FUZZ_SOURCES))
# The objects with the main functions.
DEMO_MAINS    := $(call objects,$(wildcard demo/*.c))
EXAMPLE_MAINS := $(call objects,$(wildcard demo/examples/*.c))
BENCH_MAINS   := $(call objects,$(wildcard bench/*.c bench/peers/dibs/*.c))
TEST_MAINS    := $(call objects,$(wildcard test/unit/*_test.c test/integration/*_test.c))
PROG_MAINS    := $(call objects,$(wildcard test/support/prog/*.c))
FAULT_MAIN    := $(OBJ)/test/fault/worker.o
FUZZ_MAINS    := $(call objects,$(FUZZ_SOURCES))

# What the commands and lists were last time: kept in files, so that a change of them rebuilds what they made.
quoted = '$(subst ','\'',$(strip $(1)))'
record = $(shell mkdir -p $(BUILD) && { printf '%s\n' $(call quoted,$(2)) | cmp -s - $(BUILD)/$(1) || \
                 printf '%s\n' $(call quoted,$(2)) >$(BUILD)/$(1); })
ifneq ($(if $(MAKECMDGOALS),$(filter-out clean uninstall dist deb test check test-platforms test-32bit demo fuzz analysis coverage valgrind mutants,$(MAKECMDGOALS)),all),)
$(call record,flags,$(COMPILE) $(ALL_LDFLAGS) $(HIREDIS_LIBS) $(CMOCKA_CFLAGS) $(CMOCKA_LIBS))
$(call record,inside,$(HIREDIS_ARCHIVES))
$(call record,zookeeper,$(ZOOKEEPER_CFLAGS) $(ZOOKEEPER_LIBS))
$(call record,objects,$(LIB_OBJECTS) $(CLI_OBJECTS) $(CLI_LIBRARY) $(SCRIPTS) $(COMMON) $(DEMO_OBJECTS) $(BENCH_OBJECTS) $(BENCH_PARTS) \
                      $(TEST_OBJECTS) $(FAULT_OBJECTS))
endif

# ----------------------------------------------------------------- library

lib: $(LIB)/$(STATIC) $(LIB)/$(SHARED)

$(LIB)/$(STATIC): $(LIB_OBJECTS) $(BUILD)/objects
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $(LIB_OBJECTS)

$(LIB)/$(SHARED_FULL): $(LIB_OBJECTS) $(BUILD)/objects $(BUILD)/inside $(SYMBOL_MAP) $(HIREDIS_ARCHIVES)
	@mkdir -p $(@D)
	$(CC) $(SHARED_FLAGS) $(ALL_LDFLAGS) -o $@ $(LIB_OBJECTS) $(SHARED_LIBS)

$(LIB)/$(SHARED_MAJOR): $(LIB)/$(SHARED_FULL)
	@ln -sf $(SHARED_FULL) $@

$(LIB)/$(SHARED): $(LIB)/$(SHARED_MAJOR)
	@ln -sf $(SHARED_MAJOR) $@

$(BUILD)/scripts_lua.c: src/redis/scripts/embed.awk $(SCRIPTS) $(BUILD)/objects
	@mkdir -p $(@D)
	LC_ALL=C awk -f src/redis/scripts/embed.awk $(SCRIPTS) >$@

# ----------------------------------------------------------------- objects

$(LIB_OBJECTS): PRIVATE := -fPIC -fvisibility=hidden -Isrc
$(CLI_OBJECTS): PRIVATE := -Isrc
$(COMMON) $(FAULT_OBJECTS) $(FAULT_MAIN) $(PROG_MAINS): PRIVATE := -Itest
$(DEMO_OBJECTS) $(DEMO_MAINS): PRIVATE := -Idemo -Itest
$(OBJ)/demo/examples/fence_sql.o: PRIVATE := $(SQLITE_CFLAGS)
$(OBJ)/demo/examples/libuv_server.o: PRIVATE := $(LIBUV_CFLAGS)
$(ZOOKEEPER_OBJECT): PRIVATE += $(ZOOKEEPER_CFLAGS)
$(ZOOKEEPER_OBJECT) $(DEMOS): $(BUILD)/zookeeper
$(BENCH_OBJECTS) $(BENCH_PARTS) $(BENCH_MAINS): PRIVATE := -Ibench -Itest
$(TEST_OBJECTS) $(TEST_MAINS): PRIVATE := -Isrc -Itest $(CMOCKA_CFLAGS)
$(TEST_OBJECTS) $(TEST_MAINS): | $(need_cmocka)
$(FUZZ_OBJECTS) $(FUZZ_MAINS): PRIVATE := -Isrc -Itest

$(OBJ)/%.o: %.c $(BUILD)/flags | $(need_hiredis)
	@mkdir -p $(@D)
	$(COMPILE) $(PRIVATE) -MMD -MP -c -o $@ $<

$(OBJ)/scripts_lua.o: $(BUILD)/scripts_lua.c $(BUILD)/flags | $(need_hiredis)
	@mkdir -p $(@D)
	$(COMPILE) $(PRIVATE) -MMD -MP -c -o $@ $<

$(BUILD)/flags $(BUILD)/objects $(BUILD)/inside $(BUILD)/zookeeper: ;

-include $(patsubst %.o,%.d,$(LIB_OBJECTS) $(CLI_OBJECTS) $(COMMON) $(DEMO_OBJECTS) $(BENCH_OBJECTS) $(BENCH_PARTS) $(TEST_OBJECTS) \
                              $(FAULT_OBJECTS) $(FUZZ_OBJECTS) $(DEMO_MAINS) $(EXAMPLE_MAINS) $(BENCH_MAINS) $(TEST_MAINS) \
                              $(PROG_MAINS) $(FAULT_MAIN) $(FUZZ_MAINS))

# ---------------------------------------------------------------- programs

# A program is linked of the object of its main function, its helpers and the static library.
define link
@mkdir -p $(@D)
$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(HIREDIS_LIBS)
endef

$(DEMOS): $(BUILD)/demo/%: $(OBJ)/demo/%.o $(DEMO_OBJECTS) $(COMMON) $(LIB)/$(STATIC)
	$(link) $(ZOOKEEPER_LIBS)

# Examples use what is installed alone.
$(EXAMPLES): $(BUILD)/demo/examples/%: $(OBJ)/demo/examples/%.o $(LIB)/$(STATIC)
	$(link) $(EXAMPLE_LIBS)

$(BUILD)/demo/examples/fence_sql: EXAMPLE_LIBS := $(SQLITE_LIBS)
$(BUILD)/demo/examples/libuv_server: EXAMPLE_LIBS := $(LIBUV_LIBS)
$(BUILD)/demo/examples/asio_timeout: CXX_STANDARD := c++20
CXX_STANDARD  := c++17

$(EXAMPLE_OF_CXX): $(BUILD)/%: %.cpp $(wildcard include/*.hpp) include/dibs.h $(LIB)/$(STATIC) $(BUILD)/flags | $(need_hiredis)
	@mkdir -p $(@D)
	$(CXX) -std=$(CXX_STANDARD) $(WARNINGS) -pthread $(SANITIZERS) $(CFLAGS) $(ALL_CPPFLAGS) $(ALL_LDFLAGS) -o $@ $< \
	    $(LIB)/$(STATIC) $(HIREDIS_LIBS)

$(BENCHES): $(BUILD)/bench/%: $(OBJ)/bench/%.o $(BENCH_OBJECTS) $(COMMON) $(LIB)/$(STATIC)
	$(link)

# The parts of a benchmark stand in a folder of its name.
$(BUILD)/bench/contended: $(filter $(OBJ)/bench/contended/%,$(BENCH_PARTS))
$(BUILD)/bench/calls: $(filter $(OBJ)/bench/calls/%,$(BENCH_PARTS))
$(BUILD)/bench/names: $(filter $(OBJ)/bench/names/%,$(BENCH_PARTS))
$(BUILD)/bench/tasks: $(filter $(OBJ)/bench/tasks/%,$(BENCH_PARTS))
$(BUILD)/bench/topologies: $(filter $(OBJ)/bench/topologies/%,$(BENCH_PARTS))

$(PEER): $(call objects,$(wildcard bench/peers/dibs/*.c)) $(BENCH_OBJECTS) $(COMMON) $(LIB)/$(STATIC)
	$(link)

$(UNIT_TESTS) $(INTEGRATION): $(BUILD)/test/%: $(OBJ)/test/%.o $(TEST_OBJECTS) $(COMMON) $(LIB)/$(STATIC)
	$(link) $(CMOCKA_LIBS) $(DL_LIBS)

$(TEST_PROGRAMS): $(BUILD)/test/prog/%: $(OBJ)/test/support/prog/%.o $(COMMON) $(LIB)/$(STATIC)
	$(link)

$(FAULT_WORKER): $(FAULT_MAIN) $(FAULT_OBJECTS) $(COMMON) $(LIB)/$(STATIC)
	$(link)

$(REPLAYS): $(BUILD)/test/%_replay: $(OBJ)/test/%_fuzz.o $(FUZZ_OBJECTS) $(LIB)/$(STATIC)
	$(link)

# Only with the flags of "fuzz" below: there libFuzzer has the main function.
$(FUZZERS): $(BUILD)/test/%: $(OBJ)/test/%.o $(FUZZ_SUPPORT) $(LIB)/$(STATIC)
	$(link) -fsanitize=fuzzer

# They go into a server that was built without sanitizers.
$(TEST_SHIMS): $(BUILD)/test/prog/%.so: test/support/shim/%.c
$(FAULT_SHIM): test/fault/clock_shim.c
$(FAULT_SHIM) $(TEST_SHIMS): $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) -std=c11 $(WARNINGS) $(CFLAGS) $(ALL_CPPFLAGS) -shared -fPIC -o $@ $(filter %.c,$^)

# The command is of several files, which use the public header alone. Like the shared library it has a hiredis inside, so that it
# also starts where hiredis is in a folder in which the system does not look for libraries.
$(CLI): $(CLI_OBJECTS) $(CLI_LIBRARY) $(BUILD)/objects $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(CLI_OBJECTS) $(CLI_LIBRARY) $(if $(filter %.a,$(CLI_LIBRARY)),$(SHARED_LIBS))

cli: $(CLI)
race: $(DEMOS)
demos: race $(filter-out $(EXAMPLES_LEFT_OUT),$(EXAMPLES) $(EXAMPLE_OF_CXX))
ifneq ($(filter demos,$(MAKECMDGOALS)),)
$(foreach one,$(LEFT_OUT),$(info demo/examples/$(firstword $(subst :, ,$(one))) is left out: $(lastword $(subst :, ,$(one))) is missing))
$(if $(EXAMPLE_OF_CXX),,$(info the examples in C++ are left out: there is no C++ compiler $(CXX)))
endif
benches: $(BENCHES)
units: $(UNIT_TESTS)
# What test programs start, what the fault rig starts, and what replays the corpora of the fuzz targets.
helpers: $(TEST_PROGRAMS) $(TEST_SHIMS) $(FAULT_SHIM)
rig: $(FAULT_WORKER) $(FAULT_SHIM)
replays: $(REPLAYS)
peer: $(PEER)
tests: $(CLI) units $(INTEGRATION) helpers rig replays peer
fuzzers: $(FUZZERS)

# ----------------------------------------------------------------- running

# test/run and demo/run call make themselves: the flags of this one are not for them, variables reach them all the same.
test:
	@MAKEFLAGS= MFLAGS= sh test/run --no-install $(if $(ALL),--all) $(ONLY)

check:
	@programs=$$(python3 -B test/mutants/reach.py $(if $(EVERY),--every) '$(FILE)') && \
	    MAKEFLAGS= MFLAGS= DIBS_VARIANTS="$${DIBS_VARIANTS:-plain}" sh test/run --no-install $$programs

test-platforms:
	@MAKEFLAGS= MFLAGS= sh test/platforms/run $(ONLY)

test-32bit:
	@MAKEFLAGS= MFLAGS= sh test/platforms/run --32bit $(ONLY)

demo:
	@MAKEFLAGS= MFLAGS= sh demo/run --no-install

bench: benches
	@MAKEFLAGS= MFLAGS= DIBS_BUILD=$(call quoted,$(abspath $(BUILD))) sh bench/run $(TABLES)

peers: $(PEER)
	@python3 -B bench/peers/run --build $(BUILD) $(addprefix --into ,$(INTO))
	@python3 -B bench/peers/shared --build $(BUILD) $(addprefix --into ,$(INTO))

.PHONY: compare-run
compare-run: cli
	@python3 -B bench/commands/run --build $(BUILD) $(addprefix --into ,$(INTO))

FUZZ_SECONDS ?= 60
FUZZ_CC      ?= clang
fuzz:
	@MAKEFLAGS= MFLAGS= FUZZ_CC=$(FUZZ_CC) sh test/fuzz/run $(BUILD)/fuzz $(FUZZ_SECONDS)

analysis:
	@DIBS_TOP=$(CURDIR) sh test/build/analysis.sh

coverage:
	@MAKEFLAGS= MFLAGS= sh test/coverage.sh

valgrind:
	@MAKEFLAGS= MFLAGS= DIBS_VARIANTS=valgrind sh test/run --no-install $(or $(ONLY),unit/)

MINUTES ?= 1
soak: rig
	python3 -B test/fault/rig.py --worker $(FAULT_WORKER) --shim $(FAULT_SHIM) --seconds $$(($(MINUTES) * 60)) \
	    $(addprefix --seed ,$(SEED)) $(addprefix --faults ,$(FAULTS)) $(addprefix --topology ,$(TOPOLOGY)) --report $(BUILD)/soak.txt

bugs: tests
	sh test/fault/bugs/run

N    ?= 100
JOBS ?= 2
mutants:
	@MAKEFLAGS= MFLAGS= CC='$(CC)' python3 -B test/mutants/mutants.py --work $(BUILD)/mutants --number $(N) \
	    --seed $(or $(SEED),1) --jobs $(JOBS) $(if $(AGAIN),--again) --programs '$(PROGRAMS)' $(ONLY)

# --------------------------------------------------- installing and packing

include src/package/package.mk
include test/sim/sim.mk

clean:
	rm -rf $(if $(filter build,$(BUILD)),lib demo/gallery.html) $(BUILD)
