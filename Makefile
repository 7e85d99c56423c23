# Every target is a command or two; `make help` lists them. CI calls these and nothing else.

SHELL := /bin/bash
CARGO ?= cargo
# Baked images, compiled code, guest builds and toolchains live here, by digest, outside the checkout.
export CELLAR_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cellar
CELLAR := target/release/cellar
GUESTS := target/release/cellar-guests
# What the examples read: see fixtures/analysis/README.md and fixtures/lineage/README.md.
DATA := target/datasets
# Where `make install` puts things.
PREFIX ?= /usr/local
# Packages that the guests are tried with: see fixtures/packages.
PACKAGES := target/packages
# The Python SDK of MCP, which a test serves with.
MCP := target/mcp
# The clients of Jupyter that tests run notebooks with.
JUPYTER := target/jupyter
# The SDKs of E2B, which a test drives the server with.
E2B := target/e2b
# Node 22, with the conformance suite and the inspector of MCP, and a driver of browsers.
NODE := target/node
# A validator of API descriptions, which a test holds that of the server to.
OPENAPI := target/openapi
# A server of S3, which tests keep artifacts in.
MOTO := target/moto
# Tests that compare with results of another day and another machine: they run as on a third.
RECORDED := binary(transcripts) | test(guests::corpus) | test(guests::oracle) | test(guests::jupyter) | test(guests::notebook)
# Tenants in processes of their own are in an environment of their own, whose clock stays as it is.
MOVED := not test(a_session_whose_time_is_over_is_removed_though_its_tenant_has_no_process)
# Has nextest run each test by `.ci/bin/elsewhere`. No other script is in that folder, which is first in PATH for all of them.
ELSEWHERE := PATH="$(CURDIR)/.ci/bin:$$PATH" CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=elsewhere

# Unit tests: of our crates without optimisation, which takes a tenth of the time to compile. See `profile.bench`.
UNITS := $(CARGO) nextest run --cargo-profile bench --locked --workspace --lib --bins

.DEFAULT_GOAL := help
.PHONY: help announce setup test-setup builder build guests data-guest all-guests probe data packages suites tests-compiled run test test-fast test-elsewhere \
	soak fuzz coverage conformance conformance-python conformance-data conformance-javascript lint bless bench bench-peers times \
	install wheel npm dist clean prune

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what a build needs and is missing on a Debian machine
	@.ci/setup

test-setup:
	@.ci/setup tests

build: setup ## Build the command line
	@$(CARGO) build --release --locked --workspace

# The builder comes first: it has cargo compile the host while it builds guests. All of the workspace is named, so that what
# both use is compiled once, with the same features.
builder: setup
	@$(CARGO) build --release --locked --workspace --bin cellar-guests

guests: builder ## Build the command line and the guests side by side, bake and compile them (minutes the first time)
	@$(GUESTS) build --host probe javascript javascript-charts python

data-guest: builder ## The same for the guest with NumPy and pandas (10 minutes the first time, then nothing)
	@$(GUESTS) build --host python-data

all-guests: announce builder
	@$(GUESTS) build --host

probe: builder
	@$(GUESTS) build --host probe

data: setup ## Fetch the data set of the example
	@.ci/datasets $(DATA)

packages: test-setup
	@.ci/packages $(PACKAGES)
	@.ci/mcp $(MCP)
	@.ci/jupyter $(JUPYTER)
	@.ci/e2b $(E2B)
	@.ci/node $(NODE)
	@.ci/openapi $(OPENAPI)
	@.ci/moto $(MOTO)

announce: setup
	@.ci/announce $(CELLAR) $(CELLAR_CACHE)

run: all-guests data ## Set everything up and run a real analysis, and another with connectors and datasets
	@fixtures/analysis/run $(CELLAR) $(DATA)
	@fixtures/lineage/run $(CELLAR) $(DATA)

suites: builder
	@$(GUESTS) suite python-library > /dev/null
	@$(GUESTS) suite python-packages > /dev/null
	@$(GUESTS) suite python-data > /dev/null
	@$(GUESTS) suite python-data-packages > /dev/null

# All that tests need, compiled in one go.
tests-compiled: test-setup
	@$(CARGO) build --release --locked --workspace --examples
	@$(CARGO) nextest run --release --locked --workspace --test '*' --no-run
	@$(UNITS) --no-run

test: all-guests test-setup ## Run every test
	@$(MAKE) --no-print-directory --jobs=3 data packages suites tests-compiled
	@$(CELLAR) bake --fuel probe python javascript
	@$(CELLAR) bake --target x86-64-v3 python javascript
	@CELLAR_GUESTS=$(CURDIR)/target/guests $(CARGO) test --release --locked --workspace --doc
	@CELLAR_SERVE_ISOLATE=tenant $(CARGO) nextest run --release --locked --workspace --test all --no-fail-fast \
		-E 'test(serve::) - test(serve::isolation::) - test(outputs_of_agents_are_resources)'
	@$(CELLAR) bake --stops safepoints python javascript
	@CELLAR_STOPS=safepoints $(CARGO) nextest run --release --locked --workspace --test all --test transcripts --no-fail-fast \
		-E 'test(/^(py|js|probe)::limits/) | test(/^(sessions|kernels|stops)::/) | test(guests::soak) | test(guests::snapshots)'
	@$(ELSEWHERE) $(CARGO) nextest run --release --locked --workspace --test all --test transcripts --no-fail-fast -E '$(RECORDED)'
	@$(UNITS) --no-fail-fast
	@$(CARGO) nextest run --release --locked --workspace --test '*' --no-fail-fast -E 'not ($(RECORDED))'

test-fast: probe test-setup ## Run the tests that need no interpreter
	@$(UNITS)
	@$(CARGO) nextest run --release --locked --workspace --test '*' -E 'not (test(/^(py|js)::/) | test(/guests::/))'

test-elsewhere: all-guests data packages suites ## Run every test as on two other machines, on other days (an hour)
	@CELLAR_TEST_DAYS=400 $(ELSEWHERE) $(CARGO) nextest run --release --locked --workspace --no-fail-fast -E '$(MOVED)'
	@CELLAR_TEST_DAYS=-30 CELLAR_TEST_ZONE=America/St_Johns CELLAR_TEST_LOCALE=C $(ELSEWHERE) \
		$(CARGO) nextest run --release --locked --workspace --no-fail-fast -E '$(MOVED)'

soak: guests test-setup ## Run 10,000 mixed runs over 200 sessions, 2,000 sessions that wait at once, floods of 10 GiB
	@CELLAR_SOAK_RUNS=10000 CELLAR_STOPS_RACED=100000 CELLAR_FLOOD_MIB=10240 CELLAR_MANY_SESSIONS=2000 $(CARGO) nextest run --release --locked --workspace --no-capture \
		-E 'test(stops::) | test(guests::soak::) | test(guests::many::) | test(what_a_cell_may_print) | test(a_flood_costs)'

fuzz: probe test-setup ## Try what strangers write at random, a minute each, and tell how much was tried; T=seconds
	@CELLAR_FUZZ_SECONDS=$(or $(T),60) $(CARGO) nextest run --release --locked --workspace --test fuzz --no-capture

coverage: probe ## Do the same in a build that counts, and tell how much of the code behind each format has run; T=seconds
	@.ci/coverage $(or $(T),60)

conformance: all-guests suites test-setup ## Run all of the test-suites of other people, of which `make test` runs the quick part
	@$(GUESTS) suite test262 > /dev/null
	@CELLAR_CONFORMANCE=all $(CARGO) nextest run --release --locked --workspace --test conformance --no-fail-fast

conformance-python: guests suites test-setup ## Run the tests of CPython's library, and of popular packages, that a sandbox can pass
	@CELLAR_CONFORMANCE=python-library,python-packages $(CARGO) nextest run --release --locked --workspace --test conformance --no-fail-fast

conformance-data: data-guest test-setup ## Run the tests of NumPy, pandas, Matplotlib and other packages that the data guest can pass
	@$(GUESTS) suite python-data > /dev/null
	@$(GUESTS) suite python-data-packages > /dev/null
	@CELLAR_CONFORMANCE=python-data,python-data-packages $(CARGO) nextest run --release --locked --workspace --test conformance --no-fail-fast

conformance-javascript: guests test-setup ## Run ECMA's tests of JavaScript (downloads 157 MB the first time)
	@$(GUESTS) suite test262 > /dev/null
	@CELLAR_CONFORMANCE=test262 $(CARGO) nextest run --release --locked --workspace --test conformance --no-fail-fast

lint: setup ## Check format, lints and documentation
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
	@for features in '' bake tables tokens; do \
		$(CARGO) clippy --release --locked -p cellar-engine --no-default-features --features "$$features" -- -D warnings || exit 1; \
	done
	@RUSTDOCFLAGS='-D warnings' $(CARGO) doc --release --locked --workspace --no-deps --document-private-items

bless: all-guests packages ## Accept the events that the transcripts lead to now
	@CELLAR_BLESS=1 $(CARGO) test --release --locked --workspace --test transcripts
	@CELLAR_BLESS=1 $(CARGO) nextest run --release --locked --workspace -E 'test(the_description_is_the_one) | test(the_schemas_are_those) | test(the_manual_has_the_declared_limits) | test(the_page_says_what_imports_where)'

bench: all-guests ## Measure, and compare with the targets; FILTER=words selects, --quick hurries, --guard names what became slower, --record keeps the figures
	@$(CELLAR) bake --stops safepoints javascript python python-data
	@$(CARGO) bench --profile release --locked --workspace --bench bench -- $(FILTER)

bench-peers: guests ## Measure other sandboxes beside Cellar: installs eryx, Monty, quickjs-rs and Pyodide into the cache
	@.ci/peers $(CELLAR_CACHE)/peers "$$($(GUESTS) native python)"
	@$(CARGO) bench --profile release --locked --workspace --bench bench -- peers

times: builder ## Show how long each step of the last builds took; RECORD=1 writes the table into host/FIGURES.md
	@$(GUESTS) times $(if $(RECORD),--record host/FIGURES.md)

install: all-guests ## Install the command, its guests, manual pages and completions; PREFIX=/usr/local, DESTDIR=
	@.ci/install $(CELLAR) target/guests "$(DESTDIR)" "$(PREFIX)"

wheel: guests ## Make the wheel of Python with both languages, for this machine, in target/wheel
	@rm -rf target/wheel && mkdir -p target/wheel
	@.ci/install $(CELLAR) target/guests target/wheel/tree "" javascript javascript-charts python
	@.ci/wheel target/release/libcellar_python.so "$$($(CELLAR) --version | cut -d ' ' -f 2)" target/wheel/tree target/wheel
	@rm -rf target/wheel/tree && ls target/wheel

npm: guests ## Make the package of npm with both languages, for this machine, in target/npm
	@rm -rf target/npm && mkdir -p target/npm
	@.ci/install $(CELLAR) target/guests target/npm/tree "" javascript javascript-charts python
	@.ci/npm target/release/libcellar_node.so "$$($(CELLAR) --version | cut -d ' ' -f 2)" target/npm/tree target/npm
	@rm -rf target/npm/tree && ls target/npm

dist: all-guests ## Make packages in target/dist: archives, wheels of Python, packages of npm and of Debian, an image of containers; CELLAR_SIGNING_KEY= signs them
	@.ci/setup dist
	@.ci/dist $(CELLAR) target/guests target/dist

clean: ## Remove what was built here; caches stay
	@$(CARGO) clean

prune: build ## Remove from the cache what was not used for two weeks
	@$(GUESTS) prune
