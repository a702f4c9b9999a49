package main

import "crypto/rand"

// randomBootID is for machines that do not tell when they started.
func randomBootID() string { return "random-" + rand.Text() }
