#!/usr/bin/env bash
# Groups, transactions and idempotence on three real nodes against their budgets, as ratios within one run where they can be.
#   txn-budget.sh [-short] [PART ...]     PART of: transactions commits members many-commits idempotence. Default: all
# Prints one line a figure, with its budget and ok or MISS. Exit code 1: something was missed or could not be measured.
# Wants a quiet machine; takes about ten minutes. -short judges nothing and takes one.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

short='' judged=1
[ "${1:-}" = -short ] && short=yes judged='' && shift
[ $# -gt 0 ] || set -- transactions commits members many-commits idempotence
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missed=0

# tests NAME...: each logs its rows behind "budget: ".
tests() {
  GOPHERLOG_TEST_BUDGETS=$judged go test -count=1 -v -timeout 20m ./cmd/internal/endtoend -run "^($(IFS='|'; echo "$*"))\$" 2>&1 |
    tee "$work/log" | while IFS= read -r line; do
      case $line in *'budget: '*) printf '%s\n' "${line#*budget: }" ;; esac
    done
  [ "${PIPESTATUS[0]}" -eq 0 ] && return
  missed=1
  grep -q 'budget: .* MISS' "$work/log" || tail -n 40 "$work/log" >&2 # something else than a miss
}

read -r load _ </proc/loadavg 2>/dev/null || load=unknown
echo "txn-budget: $(getconf _NPROCESSORS_ONLN) cores, load average $load${short:+; short: a functional check, the figures mean nothing}"
names=()
for part in "$@"; do
  case $part in
    transactions) names+=(TestATransactionTakesAFewTimesAsLongAsItsRecord) ;;
    commits) names+=(TestOffsetsAreCommittedAboutAsFastAsRecords) ;;
    members) names+=(TestManyMembersSettleInTheirGroups) ;;
    many-commits) names+=(TestAShardOfManyGroupsIsTakenOverSoon TestManyCommitsLeaveASmallLogThatLoadsSoon) ;;
    idempotence) names+=(TestAnIdempotentRecordCostsBrokersNoMore) ;;
    *) echo "txn-budget: no part is called $part" >&2; exit 2 ;;
  esac
done
tests "${names[@]}"
exit $missed
