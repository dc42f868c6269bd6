package ottla_test

import (
	"context"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/kgo"

	"ottla"
)

// A real broker inside a program or a test: on a free port, in a directory that Close removes.
func Example() {
	ctx := context.Background()
	broker, err := ottla.Start(ctx, ottla.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("hello"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "hello", Value: []byte("world")}).FirstErr(); err != nil {
		log.Fatal(err)
	}
	for _, r := range client.PollFetches(ctx).Records() {
		fmt.Printf("%s %d: %s\n", r.Topic, r.Offset, r.Value)
	}
	// Output: hello 0: world
}
