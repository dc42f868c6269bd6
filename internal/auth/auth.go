// Package auth says who asks and what they may do: principals, the operations and resources of
// Kafka's authorizer, and the session a request belongs to. Transport makes the [Session] of a
// connection, broker and controller ask an [Authorizer] before they act on any request, so
// that no handler can be reached past it. The package does no I/O.
package auth

import "context"

// ClusterName is the name of the only resource of type [Cluster].
const ClusterName = "kafka-cluster"

// A Principal is who a request comes from. Source: Kafka's KafkaPrincipal.
type Principal struct {
	Type string // UserType, unless an authenticator says otherwise
	Name string
}

// UserType is the type of every principal Kafka itself makes.
const UserType = "User"

// Anonymous is the principal of a connection that did not authenticate.
var Anonymous = Principal{Type: UserType, Name: "ANONYMOUS"}

// String returns type:name, as ACLs and Kafka's tools write it.
func (p Principal) String() string { return p.Type + ":" + p.Name }

// An Operation is what is asked of a resource. The codes are Kafka's (AclOperation): they are
// on the wire and in metadata records.
type Operation int8

// The operations. AnyOperation matches in filters only.
const (
	UnknownOperation Operation = iota
	AnyOperation
	All
	Read
	Write
	Create
	Delete
	Alter
	Describe
	ClusterAction
	DescribeConfigs
	AlterConfigs
	IdempotentWrite
	CreateTokens
	DescribeTokens
	TwoPhaseCommit
)

// A ResourceType is a kind of thing an operation is asked of. The codes are Kafka's
// (org.apache.kafka.common.resource.ResourceType).
type ResourceType int8

// The resource types. AnyResource matches in filters only.
const (
	UnknownResource ResourceType = iota
	AnyResource
	Topic
	Group
	Cluster
	TransactionalID
	DelegationToken
	User
)

// An Authorizer says whether the session in ctx may do op to the resource of that type and name.
// It is called by many goroutines, often once per topic of a request, and must not block.
type Authorizer func(ctx context.Context, op Operation, resource ResourceType, name string) bool

// AllowAll allows everything: the Authorizer of a cluster that has none configured.
func AllowAll(context.Context, Operation, ResourceType, string) bool { return true }

// A Session is what is known of the connection a request came over, or, of a forwarded request, of
// the connection it first came over. It is set once and never changed, except the client's
// software, which is learnt from ApiVersions: then a new Session takes its place.
type Session struct {
	Principal Principal
	Listener  string // name of the listener, such as PLAINTEXT
	Host      string // address of the client without port
	ClientID  string // of the request's header; empty if null
	// SoftwareName and SoftwareVersion are the client library's, by KIP-511; empty if it did not say.
	SoftwareName, SoftwareVersion string
}

type sessionKey struct{}

// With returns a context that carries s, for the request that is handled under it.
func With(ctx context.Context, s *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

// nobody is the session of work the process does on its own account.
var nobody = &Session{Principal: Anonymous}

// From returns the session that ctx carries, or that of an anonymous client without address if it
// carries none. It is never nil and must not be changed.
func From(ctx context.Context) *Session {
	if s, ok := ctx.Value(sessionKey{}).(*Session); ok {
		return s
	}
	return nobody
}
