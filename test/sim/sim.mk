# The simulation: the library's sources, compiled as they are but for the header of atomics, with what they call of the C
# library renamed (test/sim/seams.txt), and a program that loads them (test/sim/sim.c).

SIM_OBJECTS   := $(patsubst $(OBJ)/%.o,$(BUILD)/sim/obj/%.o,$(LIB_OBJECTS))
SIM_LIBRARY   := $(BUILD)/sim/dibs.so
SIM_SOURCES   := $(wildcard test/sim/*.c) test/support/resp.c
SIM_PROGRAM   := $(BUILD)/sim/sim
LUA_CFLAGS    := $(call query,--cflags lua5.1)
# not shared, where there is one: that is 5 % faster
LUA_LIBS       = $(or $(filter /%,$(shell $(CC) -print-file-name=liblua5.1.a)),$(call query,--libs lua5.1))
SIM_PARTS     := $(patsubst %.c,$(BUILD)/sim/parts/%.o,$(SIM_SOURCES))
SIM_CHECKS    ?= -DDIBS_CHECKED # without: half as fast again, as in doc/PERFORMANCE.md
ifneq ($(filter sim%,$(MAKECMDGOALS)),)
$(call record,sim_checks,$(SIM_CHECKS))
endif
SIM_COMPILE    = $(CC) -std=c11 -O2 -g $(WARNINGS) -pthread $(CPPFLAGS) $(PLATFORM) -Iinclude

$(BUILD)/sim/obj/scripts_lua.o: $(BUILD)/scripts_lua.c
	@mkdir -p $(@D)
	$(SIM_COMPILE) -Isrc -fPIC -fvisibility=hidden -c -o $@ $<

$(BUILD)/sim/obj/%.o: %.c test/sim/include/stdatomic.h test/sim/sim.mk $(BUILD)/flags $(BUILD)/sim_checks
	@mkdir -p $(@D)
	$(SIM_COMPILE) $(SIM_CHECKS) $(HIREDIS_CFLAGS) -isystem test/sim/include -Isrc -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(BUILD)/sim_checks: ;

$(SIM_LIBRARY): $(SIM_OBJECTS) test/sim/seams.txt
	$(LD) -r -o $(BUILD)/sim/all.o $(SIM_OBJECTS)
	objcopy --redefine-syms=test/sim/seams.txt $(BUILD)/sim/all.o $(BUILD)/sim/seams.o
	$(CC) -shared -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete -Wl,-Bsymbolic -Wl,--version-script=src/package/dibs.map -o $@ $(BUILD)/sim/seams.o $(HIREDIS_LIBS)

$(SIM_PARTS): $(BUILD)/sim/parts/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(SIM_COMPILE) -O3 -Wno-unused-parameter $(LUA_CFLAGS) -Isrc -Itest -MMD -MP -c -o $@ $<

# The functions of the library are found when they are called first: by then it is loaded.
$(SIM_PROGRAM): $(SIM_PARTS) $(BUILD)/sim/obj/src/redis/scripts.o $(BUILD)/sim/obj/src/redis/slot.o $(BUILD)/sim/obj/scripts_lua.o
	$(CC) -pthread -rdynamic -Wl,-z,lazy -Wl,--unresolved-symbols=ignore-in-object-files -o $@ $^ $(LUA_LIBS) -lm -ldl

-include $(patsubst %.o,%.d,$(SIM_OBJECTS) $(SIM_PARTS))

.PHONY: sim sim-replay sim-build
sim-build: $(SIM_PROGRAM) $(SIM_LIBRARY)

sim: sim-build
	$(SIM_PROGRAM) $(SIM_LIBRARY) --seed $(or $(SEED),1) --runs $(or $(RUNS),200) $(addprefix --only ,$(ONLY))

sim-replay: sim-build
	$(SIM_PROGRAM) $(SIM_LIBRARY) --replay $(or $(SEED),1) $(addprefix --only ,$(ONLY))
