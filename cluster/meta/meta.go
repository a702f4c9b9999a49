// Package meta is the control group: one Raft group of all nodes that agrees on brokers, topics, assignments, topic configs and
// producer id blocks, and gives every node the same immutable Image of them.
// It knows who shall carry what; it does not know what a partition holds, who is alive (cluster/rpc tells it), or how replicas are
// opened and moved (cluster/partition reads the image and acts).
package meta
