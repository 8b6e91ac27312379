#!/bin/sh
# Defines a data set, sends a batch, asks a query and prints the answer. Needs kcat (apt install kcat):
#
#   sh examples/kcat.sh 127.0.0.1:9092
set -eu
broker=${1:-127.0.0.1:9092}
prefix=${2:-stream-dp.}
dataset=parcels
since=$(($(date +%s) - 60))000 # replies from then on; clocks may differ a little

# One JSON object from the standard input, as one record. Its key is the data set's name, on the partition where Java's
# murmur2 puts it; librdkafka's own choice is CRC32, and the worker would reject the record.
send() {
    tr -d '\n' | kcat -P -b "$broker" -X partitioner=murmur2_random -t "$prefix$1" -k "$dataset"
}

new_in() { # topic
    kcat -C -e -q -b "$broker" -t "$prefix$1" -o "s@$since"
}

# Prints the first new record of a topic that has these words. Topics have no order between them, so wait for the
# reply to one request before sending the next. After a time-out the same can be sent again: a known id counts once.
await() { # topic, words
    for _ in $(seq 60); do
        new_in "$1" | grep -F "\"dataset\":\"$dataset\"" | grep -F -m 1 "$2" && return
        if new_in rejected | grep -F "\"dataset\":\"$dataset\"" >&2; then exit 1; fi
        sleep 0.5
    done
    echo "no reply on $prefix$1: does a worker run?" >&2
    exit 1
}

send datasets <<END
{"version": 1, "dataset": "$dataset",
 "attributes": [
   {"name": "size", "type": "category", "values": ["small", "medium", "large"]},
   {"name": "kg", "type": "number", "edges": [1, 5, 10], "missing": true}],
 "privacy": {"epsilon": 1.0, "delta": 1e-9},
 "accuracy": {"error": 0.02, "failure_probability": 0.01},
 "phase": {"min_rows": 20000}}
END
await events '"event":"dataset_accepted"'

# Rows that are alike can be sent as one, with their count. These parcels were never sent.
send batches <<END
{"version": 1, "dataset": "$dataset", "batch_id": "2026-11-21",
 "cells": [{"size": "small", "kg": 0.4, "count": 12000}, {"size": "medium", "kg": 3, "count": 5000},
           {"size": "large", "kg": 12.5, "count": 2500}, {"size": "large", "kg": null, "count": 500}]}
END
await events '"batch_id":"2026-11-21"'

# The answer under an id never changes: a new query needs a new id.
query_id=$(date +%s)-$$
send queries <<END
{"version": 1, "dataset": "$dataset", "analyst": "ann", "query_id": "$query_id",
 "where": {"all": [{"attribute": "size", "eq": "large"}, {"attribute": "kg", "ge": 10}]}}
END
await answers "\"query_id\":\"$query_id\""
