// sarama against a broker: idempotent and plain producers with every codec, a group, and a cluster administrator.
//
//	sarama ADDRESS PREFIX    prints a line for each thing that worked; ends with 1 at the first that did not
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const perCodec = 100

var codecs = []sarama.CompressionCodec{
	sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
}

func must(what string, err error) {
	if err != nil {
		fmt.Printf("FAILED %s: %v\n", what, err)
		os.Exit(1)
	}
}

func expect(what string, ok bool, got ...any) {
	if !ok {
		fmt.Println(append([]any{"FAILED", what, "got:"}, got...)...)
		os.Exit(1)
	}
	fmt.Println("ok", what)
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func main() {
	addresses, topic := []string{os.Args[1]}, os.Args[2]
	admin, err := sarama.NewClusterAdmin(addresses, settings())
	must("connect", err)
	must("create the topic", admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false))
	err = admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	expect("a topic can't be created twice", errors.Is(err, sarama.ErrTopicAlreadyExists), err)

	total := produce(addresses, topic)
	consume(addresses, topic, topic+"-group", total)
	administer(admin, topic, topic+"-group")
	must("close", admin.Close())
}

func produce(addresses []string, topic string) int {
	for _, codec := range codecs {
		config := settings()
		config.Producer.Compression = codec
		config.Producer.RequiredAcks = sarama.WaitForAll
		if codec != sarama.CompressionNone {
			config.Producer.Idempotent = true
			config.Net.MaxOpenRequests = 1
		}
		producer, err := sarama.NewSyncProducer(addresses, config)
		must("connect a producer", err)
		messages := make([]*sarama.ProducerMessage, perCodec)
		for n := range messages {
			messages[n] = &sarama.ProducerMessage{
				Topic:   topic,
				Key:     sarama.StringEncoder(fmt.Sprint(n % 7)),
				Value:   sarama.StringEncoder(fmt.Sprintf("%s-%d", codec, n)),
				Headers: []sarama.RecordHeader{{Key: []byte("codec"), Value: []byte(codec.String())}},
			}
		}
		must("produce with "+codec.String(), producer.SendMessages(messages))
		must("close", producer.Close())
		fmt.Println("ok produced with", codec)
	}
	return perCodec * len(codecs)
}

type handler struct {
	sync.Mutex
	seen map[string]int
	want int
	done context.CancelFunc
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			h.Lock()
			h.seen[string(message.Value)]++
			enough := len(h.seen) == h.want
			h.Unlock()
			session.MarkMessage(message, "noted")
			if enough {
				session.Commit()
				h.done()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(addresses []string, topic, group string, total int) {
	consumers, err := sarama.NewConsumerGroup(addresses, group, settings())
	must("connect a group", err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	h := &handler{seen: map[string]int{}, want: total, done: cancel}
	for ctx.Err() == nil {
		if err := consumers.Consume(ctx, []string{topic}, h); err != nil && ctx.Err() == nil {
			must("consume", err)
		}
	}
	must("leave", consumers.Close())
	expect("every message was read", len(h.seen) == total, len(h.seen), "of", total)
}

func administer(admin sarama.ClusterAdmin, topic, group string) {
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2}})
	must("list offsets", err)
	var sum int64
	for partition := range int32(3) {
		if block := offsets.GetBlock(topic, partition); block.Offset > 0 {
			sum += block.Offset
		}
	}
	expect("the group has committed all of it", sum == int64(perCodec*len(codecs)), sum)

	groups, err := admin.DescribeConsumerGroups([]string{group})
	must("describe the group", err)
	expect("the group is empty", groups[0].State == "Empty", groups[0].State)

	value := "7200000"
	must("alter configs", admin.IncrementalAlterConfig(sarama.TopicResource, topic,
		map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}, false))
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	must("describe configs", err)
	expect("the setting is changed", len(entries) == 1 && entries[0].Value == value, entries)

	must("delete records", admin.DeleteRecords(topic, map[int32]int64{0: 1}))
	must("create partitions", admin.CreatePartitions(topic, 5, nil, false))
	described, err := admin.DescribeTopics([]string{topic})
	must("describe topics", err)
	expect("there are more partitions", len(described[0].Partitions) == 5, len(described[0].Partitions))

	must("delete the offset", admin.DeleteConsumerGroupOffset(group, topic, 0))
	must("delete the group", admin.DeleteConsumerGroup(group))
	must("delete the topic", admin.DeleteTopic(topic))
	fmt.Println("ok group and topic are deleted")
}
