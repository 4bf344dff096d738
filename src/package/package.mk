# Where "make install" puts what, and how "make uninstall" removes the same. Part of the Makefile.

BINDIR       ?= $(PREFIX)/bin
DATADIR      ?= $(PREFIX)/share
MANDIR       ?= $(DATADIR)/man
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
CMAKEDIR     ?= $(LIBDIR)/cmake/dibs
BASHDIR      ?= $(DATADIR)/bash-completion/completions
ZSHDIR       ?= $(DATADIR)/zsh/site-functions
FISHDIR      ?= $(DATADIR)/fish/vendor_completions.d
DOCDIR       ?= $(DATADIR)/doc/dibs
UNITDIR      ?= $(PREFIX)/lib/systemd/system

HEADERS      := $(sort $(wildcard include/*.h include/*.hpp))
MAN_PAGES    := $(sort $(wildcard doc/man/*.[1-8]))
MAN_SECTIONS := $(sort $(foreach page,$(MAN_PAGES),$(lastword $(subst ., ,$(page)))))
# LINK.3=PAGE.3 for each further name of a page, so that "man dibs_trylock" finds dibs_lock.3.
MAN_LINKS    := $(shell awk 'FNR == 1 { page = FILENAME; sub(".*/", "", page); done = 0 } /^\.Nd/ { done = 1 } \
                    !done && $$1 == ".Nm" && $$2 ".3" != page { print $$2 ".3=" page }' $(filter %.3,$(MAN_PAGES)) /dev/null)
COMPLETION   := src/cli/completion
BASH_FILE    := $(wildcard $(COMPLETION)/dibs.bash)
ZSH_FILE     := $(wildcard $(COMPLETION)/_dibs)
FISH_FILE    := $(wildcard $(COMPLETION)/dibs.fish)
# dibs-hold@.service is ready to use; the others are examples, which stand beside the page that explains them.
UNITS        := $(sort $(wildcard doc/systemd/*.service))
UNIT         := dibs-hold@.service

# What make writes itself, instead of having install(1) copy it.
WRITTEN       = $(PKGCONFIGDIR)/dibs.pc $(addprefix $(CMAKEDIR)/,dibs-config.cmake dibs-config-version.cmake) \
                $(UNITS:doc/%=$(DOCDIR)/%) $(UNITDIR)/$(UNIT) \
                $(foreach link,$(MAN_LINKS),$(MANDIR)/man3/$(firstword $(subst =, ,$(link))))
INSTALLED     = $(addprefix $(INCLUDEDIR)/,$(notdir $(HEADERS))) \
                $(addprefix $(LIBDIR)/,$(STATIC) $(SHARED) $(SHARED_MAJOR) $(SHARED_FULL)) \
                $(BINDIR)/dibs $(WRITTEN) \
                $(foreach page,$(MAN_PAGES),$(MANDIR)/man$(lastword $(subst ., ,$(page)))/$(notdir $(page))) \
                $(DOCDIR)/SERVICES.md \
                $(BASH_FILE:%=$(BASHDIR)/dibs) $(ZSH_FILE:%=$(ZSHDIR)/_dibs) $(FISH_FILE:%=$(FISHDIR)/dibs.fish)

define newline


endef

# $(call fill,NAME,PREFIX): prints NAME.in with its words replaced. Folders below the prefix are written as relative to
# it, with PREFIX before them, so that what was installed may be moved.
below         = $(patsubst $(PREFIX)/%,$(1)%,$(2))
POINTER       = $(shell printf '__SIZEOF_POINTER__\n' | $(CC) $(CFLAGS) -E -P - | tail -n 1)
fill          = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(call below,$(2),$(LIBDIR))|' \
                    -e 's|@INCLUDEDIR@|$(call below,$(2),$(INCLUDEDIR))|' -e 's|@CMAKEDIR@|$(call below,$(2),$(CMAKEDIR))|' \
                    -e 's|@VERSION@|$(VERSION)|' -e 's|@MAJOR@|$(MAJOR)|' -e 's|@POINTER@|$(POINTER)|' \
                    -e 's|@HIREDIS@|$(call query,--modversion hiredis)|' -e 's|@LIBS@|$(strip $(HIREDIS_LIBS))|' \
                    -e 's|@NEEDS@|$(patsubst -l%,%,$(filter -l%,$(call query,--libs-only-l $(HIREDIS))))|' \
                    -e 's|@STATIC@|$(STATIC)|' -e 's|@SHARED_MAJOR@|$(SHARED_MAJOR)|' -e 's|@SHARED_FULL@|$(SHARED_FULL)|' \
                    src/package/$(1).in

# Prints a unit with the path of the command that is installed.
set_path      = sed -e 's|/usr/bin/dibs|$(BINDIR)/dibs|' $(1)

# A blank would end the name of a folder, and files would go elsewhere.
ifneq ($(filter install uninstall,$(MAKECMDGOALS)),)
$(foreach folder,PREFIX LIBDIR INCLUDEDIR BINDIR DATADIR MANDIR PKGCONFIGDIR CMAKEDIR BASHDIR ZSHDIR FISHDIR DOCDIR UNITDIR, \
    $(if $(word 2,$($(folder))),$(error $(folder) must not contain blanks (DESTDIR may): $($(folder)))))
endif

# For the shell: the folder may have blanks in its name.
STAGE         = '$(subst ','\'',$(DESTDIR))'

.PHONY: install uninstall

# Whatever the umask is, everybody may read what is installed.
install: lib cli
	umask 022; for folder in $(sort $(dir $(INSTALLED))); do mkdir -p $(STAGE)"$$folder" || exit 1; done
	install -m 644 $(HEADERS) $(STAGE)$(INCLUDEDIR)/
	install -m 644 $(LIB)/$(STATIC) $(STAGE)$(LIBDIR)/
	install -m 755 $(LIB)/$(SHARED_FULL) $(STAGE)$(LIBDIR)/
	ln -sf $(SHARED_FULL) $(STAGE)$(LIBDIR)/$(SHARED_MAJOR)
	ln -sf $(SHARED_MAJOR) $(STAGE)$(LIBDIR)/$(SHARED)
	$(call fill,dibs.pc,$${prefix}/) >$(STAGE)$(PKGCONFIGDIR)/dibs.pc
	$(call fill,dibs-config.cmake) >$(STAGE)$(CMAKEDIR)/dibs-config.cmake
	$(call fill,dibs-config-version.cmake) >$(STAGE)$(CMAKEDIR)/dibs-config-version.cmake
	install -m 755 $(CLI) $(STAGE)$(BINDIR)/
	install -m 644 doc/SERVICES.md $(STAGE)$(DOCDIR)/
	$(foreach unit,$(UNITS),$(call set_path,$(unit)) >$(STAGE)$(DOCDIR)/systemd/$(notdir $(unit))$(newline))
	$(call set_path,doc/systemd/$(UNIT)) >$(STAGE)$(UNITDIR)/$(UNIT)
	$(foreach n,$(MAN_SECTIONS),install -m 644 $(filter %.$(n),$(MAN_PAGES)) $(STAGE)$(MANDIR)/man$(n)/$(newline))
	$(foreach link,$(MAN_LINKS),printf '.so man3/%s\n' $(lastword $(subst =, ,$(link))) \
	    >$(STAGE)$(MANDIR)/man3/$(firstword $(subst =, ,$(link)))$(newline))
	for file in $(WRITTEN); do chmod 644 $(STAGE)"$$file" || exit 1; done
	$(if $(BASH_FILE),install -m 644 $(BASH_FILE) $(STAGE)$(BASHDIR)/dibs)
	$(if $(ZSH_FILE),install -m 644 $(ZSH_FILE) $(STAGE)$(ZSHDIR)/_dibs)
	$(if $(FISH_FILE),install -m 644 $(FISH_FILE) $(STAGE)$(FISHDIR)/dibs.fish)

uninstall:
	for file in $(INSTALLED); do rm -f $(STAGE)"$$file" || exit 1; done
	rmdir $(STAGE)$(CMAKEDIR) $(STAGE)$(DOCDIR)/systemd $(STAGE)$(DOCDIR) 2>/dev/null || true

# ----------------------------------------------------------------- packages

.PHONY: dist deb

dist:
	@sh src/package/dist.sh $(VERSION) $(BUILD)

deb:
	@sh src/package/deb.sh $(VERSION) $(call quoted,$(abspath $(BUILD))/deb)

# At a release, once its version stands in the header: what programs that are built now will rely on.
.PHONY: abi-baseline
abi-baseline:
	sh src/package/abi.sh write include >src/package/abi/baseline.xml.new
	mv src/package/abi/baseline.xml.new src/package/abi/baseline.xml
