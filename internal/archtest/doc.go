// Package archtest holds the arrows between the packages: what each may import of the
// others, and which of them may know a library. A package that the table doesn't name
// fails the test until somebody decides where it belongs.
package archtest
