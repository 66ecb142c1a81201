# The habits of this project; `make help` lists them. scripts/ holds the commands themselves.
.DEFAULT_GOAL := help
bin := .venv/bin

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: ## apt packages, .venv and everything the tests need
	scripts/setup test

demo: ## the main job on an emulated board
	scripts/demo

fmt: ## format Python and C
	$(bin)/ruff format . && $(bin)/ruff check --fix .
	git ls-files '*.c' '*.h' | xargs -r $(bin)/clang-format -i

check: ## format, lint, types: all that needs no running
	scripts/check

test: ## checks and all tests
	scripts/test

test-fast: ## tests that start no compiler, emulator or oracle: under a minute
	scripts/test --without-tools -q -n "$${UTVM_TEST_JOBS:-$$(( $$(nproc) + 1 ))}" --dist worksteal

replay: ## how the emitted C differs from AGAINST (HEAD), as a diff
	$(bin)/python benchmarks/replay/replay_command.py --against "$(or $(AGAINST),HEAD)"

replay-write: ## the digests that tests/replay compares with, of this tree
	$(bin)/python benchmarks/replay/replay_command.py --write

notebooks: ## run the notebooks of docs/tutorials and store what they show
	$(bin)/python scripts/run_notebooks.py

site: ## the site of the documentation, into build/site
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --quiet && echo "build/site/index.html"

screenshots: ## pictures of the server's pages for the docs, taken in Chromium
	$(bin)/python scripts/screenshots/take.py

release: ## build the wheel and the sdist, and try them with each Python that is found
	$(bin)/python scripts/release.py

mutate: ## mistakes in a copy of the tree that tests must notice: all, or ONLY=name
	$(bin)/python scripts/mutate/mutate.py --only "$(ONLY)"

size: ## sizes of the C runtime per core
	$(bin)/python scripts/size

.PHONY: help install demo fmt check test test-fast replay replay-write notebooks site screenshots release size mutate
