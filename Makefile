# foldd: build, run, test, install. `make help` lists the targets.

CC      ?= cc
PREFIX  ?= /usr/local
DESTDIR ?=
SANITIZE ?=
WERROR  ?=

# The packages that building, running and testing need, by Debian's names.
PACKAGES := gcc libc6-dev pkg-config libpq-dev libevent-dev libjansson-dev check uthash-dev \
            libinih-dev libsystemd-dev postgresql

VARIANT := $(if $(SANITIZE),sanitize,release)
OUT     := build/$(VARIANT)

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

# The last variant built is the one at build/foldd.
build/foldd: $(OUT)/foldd
	ln -sf $(VARIANT)/foldd $@
build/foldctl: $(OUT)/foldctl
	ln -sf $(VARIANT)/foldctl $@

$(OUT)/foldd: $(OUT)/main.o $(OUT)/libfoldd.a
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)
$(OUT)/foldctl: $(CTL_OBJ) $(OUT)/libfoldd.a
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)
$(OUT)/libfoldd.a: $(LIB_OBJ)
	rm -f $@ && $(AR) rcs $@ $^
$(OUT)/%.o: src/%.c | $(OUT)
	$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The SQL is part of the program: each file becomes a C string (include/sql_text.h).
$(OUT)/sql_text.o: $(OUT)/sql_text.c
	$(CC) $(ALL_CFLAGS) -c -o $@ $<
$(OUT)/sql_text.c: $(SQL) Makefile | $(OUT)
	{ echo '#include "sql_text.h"'; echo 'const struct sql_text sql_texts[] = {'; \
	  for f in $(SQL); do echo "{\"$${f#sql/}\","; \
	    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$$/\\n"/' $$f; echo '},'; done; \
	  echo '{0, 0}};'; } > $@.tmp && mv $@.tmp $@

$(OUT):
	mkdir -p $@

# Tests: one program of unit tests, one of integration tests; both use Check.
UNIT_SRC  := $(wildcard tests/unit/*.c)
INTEG_SRC := $(wildcard tests/integration/*.c)
UNIT_OBJ  := $(UNIT_SRC:%.c=$(OUT)/%.o)
INTEG_OBJ := $(INTEG_SRC:%.c=$(OUT)/%.o)

$(OUT)/tests/%.o: tests/%.c | $(OUT)
	mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(shell pkg-config --cflags check) -Itests -MMD -MP -c -o $@ $<
$(OUT)/unit: $(UNIT_OBJ) $(OUT)/libfoldd.a
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(LIBS)
$(OUT)/integration: $(INTEG_OBJ) $(OUT)/libfoldd.a
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(LIBS)

-include $(wildcard $(OUT)/*.d $(OUT)/tests/*/*.d)
