#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows calls under several policies and explains each choice. Usage: scripts/tour.sh [build folder]
#
# Runs the command on the built-in ops, and then a program whose own kernels compete.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${1:-$root/build}/bin
yard=$bin/yard
tour=$bin/example_tour
for program in "$yard" "$tour"; do
  if [ ! -x "$program" ]; then
    echo "tour: $program is not there; make build makes it" >&2
    exit 1
  fi
done

bold='' dim='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; fi

heading() { printf '\n%s== %s ==%s\n' "$bold" "$1" "$plain"; }

# Shows a yard command as a user would type it, and runs it. With `expect N` in front, the command
# must exit with N.
show() {
  local want=0 got=0 text=yard word
  if [ "$1" = expect ]; then want=$2; shift 2; fi
  for word in "$@"; do
    case $word in
      *[\(\)\ \*\|\&]*) text+=" '$word'" ;;
      *) text+=" $word" ;;
    esac
  done
  printf '\n%s$ %s%s\n' "$dim" "$text" "$plain"
  "$yard" "$@" 2>&1 || got=$?
  if [ "$got" != "$want" ]; then
    echo "tour: ended with $got, not with $want" >&2
    exit 1
  fi
}

heading 'What there is'
show list
show list rms_norm

heading 'Why this kernel'
show explain 'rms_norm(bf16[8,4096], bf16[4096])'
show explain 'softmax(f32[64,1000])' --prefer vendor --strict

heading 'What a policy rules out, and what would have been'
show expect 1 explain 'softmax(f32[64,1000])' --deny '*'

heading 'Run it: which kernel, how fast, how far from the reference'
show run 'softmax(f16[64,100;128,1])' --repeat 20
show run 'rotary_embedding(f32[5,8,64], positions=i64[5], cos=f32[128,32], sin=f32[128,32])' --repeat 20
show run 'rms_norm(f32[8,4096], f32[4096], out=&x)' --repeat 20

heading 'Invalid calls are errors with an explanation'
show expect 2 explain 'rms_norm(f32[8,4096], f32[4095])'
show expect 2 explain 'rms_nrm(f32[8,4096], f32[4096])'
show expect 2 explain 'rms_norm(f32[8,4096], f32[4096)'

heading 'A program with its own kernels (examples/tour.cc)'
"$tour"

heading 'The overhead of a call'
show bench dispatch --seconds 1
