// Package endtoend tests the commands as a user meets them: built binaries, real processes, files and sockets.
//
// It knows what each command prints and how it ends; it looks at nothing inside.
package endtoend
