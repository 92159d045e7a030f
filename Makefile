# foldd: build, run, test, install. `make help` lists the targets.

CC      ?= cc
PREFIX  ?= /usr/local
DESTDIR ?=
SANITIZE ?=
WERROR  ?=

# The packages that building, running and testing need, by Debian's names; and those of make lint.
PACKAGES := gcc libc6-dev pkg-config libpq-dev libevent-dev libjansson-dev check uthash-dev \
            libinih-dev libsystemd-dev postgresql pgbouncer
LINT_PACKAGES := clang clang-format clang-tidy cppcheck shellcheck

# Where make run keeps its data; PostgreSQL's user must be able to get there.
DIR ?= $(if $(filter 0,$(shell id -u)),/var/lib/foldd-standalone,$(HOME)/.foldd-standalone)

# V=1 shows the commands.
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-4s %s\n' $(1) $(2))
JOBS ?= $(shell nproc)

VARIANT := $(if $(SANITIZE),sanitize,release)
OUT     ?= build/$(VARIANT)

LIBS_PC := libpq libevent libevent_extra jansson inih libsystemd
WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wold-style-definition -Wpointer-arith -Wcast-qual -Wwrite-strings -Wvla -Wundef \
        -Wformat=2 -Wimplicit-fallthrough $(if $(WERROR),-Werror)
HARDEN := -fstack-protector-strong -fPIE $(if $(SANITIZE),,-D_FORTIFY_SOURCE=2)
CFLAGS ?= -O2 -g
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -Iinclude $(WARN) $(HARDEN) $(CFLAGS) \
        $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all) \
        $(shell pkg-config --cflags $(LIBS_PC) 2>/dev/null)
ALL_LDFLAGS = -pie -Wl,-z,relro,-z,now $(LDFLAGS) $(if $(SANITIZE),-fsanitize=$(SANITIZE))
LIBS = $(shell pkg-config --libs $(LIBS_PC) 2>/dev/null)
CHECK_LIBS = $(shell pkg-config --libs check 2>/dev/null)

# Two programs on one library: foldd is main.c, foldctl is foldctl.c with ctl_*.c.
CTL_SRC  := $(wildcard src/foldctl.c src/ctl_*.c)
LIB_SRC  := $(filter-out src/main.c $(CTL_SRC),$(wildcard src/*.c))
LIB_OBJ  := $(LIB_SRC:src/%.c=$(OUT)/%.o) $(OUT)/sql_text.o
CTL_OBJ  := $(CTL_SRC:src/%.c=$(OUT)/%.o)
SQL      := $(sort $(wildcard sql/*.sql))

.PHONY: all
all: build/foldd build/foldctl

.PHONY: help
help:
	@echo 'make run      install what is missing, build, run foldd with a PostgreSQL of its own'
	@echo 'make test     install what is missing, build, run every test'
	@echo 'make          build build/foldd and build/foldctl'
	@echo 'make deps     install what building and testing need'
	@echo 'make lint     layers, formats, static checks, rules of the SQL'
	@echo 'make chaos    kill, stop and cut at random, then check the promises (LONG=1, SEED=n)'
	@echo 'make fuzz     fuzz what reads input (FUZZ_SECONDS=60)'
	@echo 'make bench    measure against bare PostgreSQL (tests/bench/README.md)'
	@echo 'make install  PREFIX=/usr/local DESTDIR='
	@echo 'make clean'
	@echo 'SANITIZE=address,undefined builds and tests with sanitizers; WERROR=1 stops at warnings.'

.PHONY: deps lint-deps
deps:
	@.ci/deps $(PACKAGES)
lint-deps:
	@.ci/deps $(LINT_PACKAGES)

# Sub-makes, since pkg-config may be there only after deps.
.PHONY: run
run: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@mkdir -p $(dir $(DIR))
	@printf '\n%s\n' 'foldd starts in $(DIR) (make run DIR=... for another place). In a second terminal:'
	@printf '  %s\n' \
	  'export FOLDD_SOCKET=$(DIR)/foldd.sock' \
	  "build/foldctl append -c note n1 create '{\"title\":\"Hello\",\"price\":19.99}'" \
	  'build/foldctl get -c note n1' \
	  "build/foldctl psql -c 'SELECT * FROM foldd.documents'"
	@printf '%s\n\n' 'Ctrl-C stops it.'
	@build/foldd --standalone $(DIR)

# The last variant built is the one at build/foldd.
build/foldd: $(OUT)/foldd
	$(Q)ln -sf $(VARIANT)/foldd $@
build/foldctl: $(OUT)/foldctl
	$(Q)ln -sf $(VARIANT)/foldctl $@

$(OUT)/foldd: $(OUT)/main.o $(OUT)/libfoldd.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)
$(OUT)/foldctl: $(CTL_OBJ) $(OUT)/libfoldd.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)
$(OUT)/libfoldd.a: $(LIB_OBJ)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(OUT)/%.o: src/%.c | $(OUT)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The SQL is part of the program: each file becomes a C string (include/sql_text.h).
$(OUT)/sql_text.o: $(OUT)/sql_text.c
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<
$(OUT)/sql_text.c: $(SQL) Makefile | $(OUT)
	$(Q){ echo '#include "sql_text.h"'; echo 'const struct sql_text sql_texts[] = {'; \
	  for f in $(SQL); do echo "{\"$${f#sql/}\","; \
	    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$$/\\n"/' $$f; echo '},'; done; \
	  echo '{0, 0}};'; } > $@.tmp && mv $@.tmp $@

$(OUT):
	$(Q)mkdir -p $@

# Tests: one program of unit tests, one of integration tests; both use Check.
UNIT_SRC  := $(wildcard tests/unit/*.c tests/fuzz/fuzz_*.c)
INTEG_SRC := $(wildcard tests/integration/*.c)
UNIT_OBJ  := $(UNIT_SRC:%.c=$(OUT)/%.o)
INTEG_OBJ := $(INTEG_SRC:%.c=$(OUT)/%.o)

$(OUT)/tests/%.o: tests/%.c | $(OUT)
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) $(shell pkg-config --cflags check) -Itests -MMD -MP -c -o $@ $<
$(OUT)/unit: $(UNIT_OBJ) $(OUT)/libfoldd.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(LIBS)
$(OUT)/integration: $(INTEG_OBJ) $(OUT)/libfoldd.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(LIBS)

.PHONY: test test-unit test-integration
test: deps
	@$(MAKE) --no-print-directory -j$(JOBS) test-unit
	@$(MAKE) --no-print-directory -j$(JOBS) test-integration
	@$(MAKE) --no-print-directory -j$(JOBS) test-chaos
test-unit: $(OUT)/unit
	$(OUT)/unit
test-integration: $(OUT)/integration $(OUT)/foldd $(OUT)/foldctl
	FOLDD=$(OUT)/foldd FOLDCTL=$(OUT)/foldctl $(OUT)/integration

# Benchmarks and chaos use the harness of the integration tests.
HARNESS_OBJ := $(patsubst %.c,$(OUT)/%.o, \
    $(filter-out tests/integration/main.c tests/integration/test_%,$(INTEG_SRC)))
BENCH_OBJ := $(patsubst %.c,$(OUT)/%.o,$(wildcard tests/bench/*.c)) $(HARNESS_OBJ)
CHAOS_OBJ := $(patsubst %.c,$(OUT)/%.o,$(wildcard tests/chaos/*.c)) $(HARNESS_OBJ)
$(OUT)/bench: $(BENCH_OBJ) $(OUT)/libfoldd.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -pthread -o $@ $^ $(CHECK_LIBS) $(LIBS)
.PHONY: bench
bench: deps
	@$(MAKE) --no-print-directory -j$(JOBS) $(OUT)/bench all
	FOLDD=$(OUT)/foldd FOLDCTL=$(OUT)/foldctl $(OUT)/bench

# Kills, stops, cuts and locks at random, then checks invariants: SEED=n repeats, LONG=1 goes on.
$(OUT)/chaos: $(CHAOS_OBJ) $(OUT)/libfoldd.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -pthread -o $@ $^ $(CHECK_LIBS) $(LIBS)
.PHONY: chaos test-chaos
test-chaos: $(OUT)/chaos $(OUT)/foldd $(OUT)/foldctl
	FOLDD=$(OUT)/foldd FOLDCTL=$(OUT)/foldctl $(OUT)/chaos
chaos: deps
	@$(MAKE) --no-print-directory -j$(JOBS) test-chaos

# libFuzzer on the parts that read what others wrote; new inputs go below build/.
FUZZ_SECONDS ?= 60
FUZZED := $(patsubst %,src/%.c,mem err buf clock hash scan line emit op proto config)
.PHONY: fuzz
fuzz: lint-deps
	@for t in line proto config; do \
	  echo "fuzzing $$t for $(FUZZ_SECONDS) s"; mkdir -p build/fuzz/$$t && \
	  clang $(ALL_CFLAGS) -Itests -fsanitize=fuzzer,address,undefined -DFUZZ_TARGET=fuzz_$$t \
	    -o build/fuzz/fuzz_$$t tests/fuzz/*.c $(FUZZED) \
	    $(LIBS) && \
	  build/fuzz/fuzz_$$t -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -verbosity=0 \
	    build/fuzz/$$t tests/fuzz/corpus/$$t || exit 1; done

.PHONY: lint
lint: lint-deps
	tests/lint/run

.PHONY: install
install: all
	install -D -m 755 build/foldd $(DESTDIR)$(PREFIX)/sbin/foldd
	install -D -m 755 build/foldctl $(DESTDIR)$(PREFIX)/bin/foldctl
	install -D -m 644 doc/foldctl.1 $(DESTDIR)$(PREFIX)/share/man/man1/foldctl.1
	install -D -m 644 config/foldd.conf $(DESTDIR)$(PREFIX)/share/doc/foldd/foldd.conf
	mkdir -p $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|/usr/local/sbin|$(PREFIX)/sbin|' systemd/foldd.service \
	  > $(DESTDIR)$(PREFIX)/lib/systemd/system/foldd.service

.PHONY: clean
clean:
	rm -rf build

-include $(wildcard $(OUT)/*.d $(OUT)/tests/*/*.d)
