import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of the Java client, which speaks version 2 (KIP-890): each case prints "ok NAME" or "failed NAME: reason". */
public final class TransactionCases {
    private static String bootstrap;

    interface Case {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("version_two_is_finalized", TransactionCases::versionTwo);
        cases.put("commit_and_abort", TransactionCases::commitAndAbort);
        cases.put("many_in_a_row", TransactionCases::manyInARow);
        cases.put("fencing", TransactionCases::fencing);
        cases.put("positions", TransactionCases::positions);
        cases.put("positions_of_a_classic_member", () -> positionsOfAMember("classic"));
        cases.put("positions_of_a_consumer_member", () -> positionsOfAMember("consumer"));
        cases.put("administration", TransactionCases::administration);
        cases.put("listed_by_pattern", TransactionCases::listedByPattern);
        for (Map.Entry<String, Case> entry : cases.entrySet()) {
            try {
                entry.getValue().run();
                System.out.println("ok " + entry.getKey());
            } catch (Throwable failure) {
                StackTraceElement where = Arrays.stream(failure.getStackTrace())
                        .filter(frame -> frame.getClassName().startsWith("TransactionCases"))
                        .findFirst().orElse(null);
                String reason = String.valueOf(failure).replace('\n', ' ');
                System.out.println("failed " + entry.getKey() + ": " + reason + " at " + where);
            }
        }
        System.exit(0);
    }

    private static void versionTwo() throws Exception {
        try (Admin admin = admin()) {
            FeatureMetadata features = admin.describeFeatures().featureMetadata().get();
            same((short) 2, features.finalizedFeatures().get("transaction.version").maxVersionLevel());
        }
    }

    private static void commitAndAbort() throws Exception {
        String topic = newTopic(2);
        try (KafkaProducer<String, String> producer = producer(name("writer"))) {
            for (int n = 0; n < 6; n++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, "left-" + n));
                producer.send(new ProducerRecord<>(topic, 1, null, "right-" + n));
                if (n % 3 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            producer.beginTransaction();
            producer.abortTransaction(); // without any record: it never reaches a partition
        }
        same(List.of("left-0", "left-2", "left-3", "left-5"), read(topic, 0, 4));
        same(List.of("right-0", "right-2", "right-3", "right-5"), read(topic, 1, 4));
    }

    private static void manyInARow() throws Exception {
        String topic = newTopic(3);
        List<List<String>> wanted = List.of(new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
        try (KafkaProducer<String, String> producer = producer(name("writer"))) {
            for (int n = 0; n < 40; n++) {
                producer.beginTransaction();
                for (int record = 0; record < 30; record++) {
                    producer.send(new ProducerRecord<>(topic, record % 3, null, n + "." + record));
                }
                if (n % 5 == 2) {
                    producer.abortTransaction();
                    continue;
                }
                producer.commitTransaction();
                for (int record = 0; record < 30; record++) {
                    wanted.get(record % 3).add(n + "." + record);
                }
            }
        }
        for (int partition = 0; partition < 3; partition++) {
            same(wanted.get(partition), read(topic, partition, wanted.get(partition).size()));
        }
    }

    private static void fencing() throws Exception {
        String topic = newTopic(1);
        String id = name("writer");
        try (KafkaProducer<String, String> old = producer(id)) {
            old.beginTransaction();
            old.send(new ProducerRecord<>(topic, "of the old one")).get();
            try (KafkaProducer<String, String> young = producer(id)) {
                young.beginTransaction();
                young.send(new ProducerRecord<>(topic, "of the young one"));
                young.commitTransaction();
            }
            try {
                old.commitTransaction();
                throw new AssertionError("a fenced producer committed");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                // as it must be
            }
        }
        same(List.of("of the young one"), read(topic, 0, 1));
    }

    private static void positions() throws Exception {
        String topic = newTopic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        String group = name("group");
        try (KafkaProducer<String, String> producer = producer(name("writer"));
                KafkaConsumer<String, String> consumer = consumer(group)) {
            for (long offset : new long[] {5, 9, 7}) {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(
                        Map.of(partition, new OffsetAndMetadata(offset)), new ConsumerGroupMetadata(group));
                if (offset == 9) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                long wanted = offset == 9 ? 5 : offset;
                same(wanted, consumer.committed(Set.of(partition)).get(partition).offset());
            }
        }
    }

    /** In the member's own name, and in the name that it had before another came: that one is fenced. */
    private static void positionsOfAMember(String protocol) throws Exception {
        String topic = newTopic(2);
        String group = name("group");
        TopicPartition zero = new TopicPartition(topic, 0);
        TopicPartition one = new TopicPartition(topic, 1);
        try (KafkaProducer<String, String> producer = producer(name("writer"));
                KafkaConsumer<String, String> first = member(group, protocol);
                KafkaConsumer<String, String> second = member(group, protocol)) {
            first.subscribe(List.of(topic));
            until(() -> {
                first.poll(Duration.ZERO);
                return first.assignment().size() == 2;
            });
            // The classic consumer answers committed() from a request that is still under way: wait for that one.
            first.position(zero);
            first.position(one);
            ConsumerGroupMetadata before = first.groupMetadata();
            OffsetAndMetadata five = new OffsetAndMetadata(5);
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(zero, five, one, five), before);
            producer.commitTransaction();
            same(Map.of(zero, five, one, five), first.committed(Set.of(zero, one)));

            second.subscribe(List.of(topic));
            until(() -> {
                first.poll(Duration.ofMillis(50));
                second.poll(Duration.ofMillis(50));
                return first.assignment().size() == 1 && second.assignment().size() == 1;
            });
            TopicPartition moved = second.assignment().iterator().next();
            first.position(first.assignment().iterator().next());
            Map<TopicPartition, OffsetAndMetadata> nine = Map.of(moved, new OffsetAndMetadata(9));
            refused(producer, nine, before);
            refused(producer, nine, new ConsumerGroupMetadata(
                    group, before.generationId(), "nobody", Optional.empty()));
            same(5L, first.committed(Set.of(moved)).get(moved).offset());
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(nine, second.groupMetadata());
            producer.commitTransaction();
            same(9L, first.committed(Set.of(moved)).get(moved).offset());
        }
    }

    private static void refused(
            KafkaProducer<String, String> producer,
            Map<TopicPartition, OffsetAndMetadata> positions,
            ConsumerGroupMetadata author) {
        producer.beginTransaction();
        try {
            producer.sendOffsetsToTransaction(positions, author);
            producer.commitTransaction();
            throw new AssertionError("positions of a member that is none any more were committed");
        } catch (CommitFailedException expected) {
            producer.abortTransaction();
        }
    }

    private static KafkaConsumer<String, String> member(String group, String protocol) {
        Map<String, Object> config = consumerConfig(group);
        config.put("group.protocol", protocol);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private static void listedByPattern() throws Exception {
        String prefix = name("pattern");
        try (Admin admin = admin();
                KafkaProducer<String, String> one = producer(prefix + "-one");
                KafkaProducer<String, String> two = producer(prefix + "-two");
                KafkaProducer<String, String> other = producer("not-" + prefix + "-one")) {
            ListTransactionsOptions options =
                    new ListTransactionsOptions().filterOnTransactionalIdPattern(prefix + "-(one|tw.)");
            Set<String> found = new HashSet<>();
            for (TransactionListing each : admin.listTransactions(options).all().get()) {
                found.add(each.transactionalId());
            }
            same(Set.of(prefix + "-one", prefix + "-two"), found);
            try {
                admin.listTransactions(new ListTransactionsOptions().filterOnTransactionalIdPattern("(")).all().get();
                throw new AssertionError("what is no expression was taken");
            } catch (ExecutionException refusal) {
                same(InvalidRegularExpression.class, refusal.getCause().getClass());
            }
        }
    }

    private static void administration() throws Exception {
        String topic = newTopic(1);
        String id = name("writer");
        try (Admin admin = admin();
                KafkaProducer<String, String> producer = producer(id)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "value")).get();
            TransactionDescription open = admin.describeTransactions(List.of(id)).description(id).get();
            same(TransactionState.ONGOING, open.state());
            same(Set.of(new TopicPartition(topic, 0)), open.topicPartitions());
            TransactionListing listed = admin.listTransactions().all().get().stream()
                    .filter(each -> each.transactionalId().equals(id)).findFirst().orElseThrow();
            same(open.producerId(), listed.producerId());
            producer.commitTransaction();
            admin.fenceProducers(List.of(id)).all().get();
            try {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "too late"));
                producer.commitTransaction();
                throw new AssertionError("a fenced producer committed");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                // as it must be
            }
        }
        same(List.of("value"), read(topic, 0, 1));
    }

    private static KafkaProducer<String, String> producer(String transactionalId) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", transactionalId);
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static KafkaConsumer<String, String> consumer(String group) {
        return new KafkaConsumer<>(consumerConfig(group), new StringDeserializer(), new StringDeserializer());
    }

    private static Map<String, Object> consumerConfig(String group) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("enable.auto.commit", false);
        config.put("isolation.level", "read_committed");
        return config;
    }

    /** The values of a partition as a read_committed consumer sees them: so many, and then no more. */
    private static List<String> read(String topic, int index, int count) {
        TopicPartition partition = new TopicPartition(topic, index);
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(name("group"))) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            // A commit is answered when it is decided: what it wrote may be visible a moment later.
            while ((values.size() < count || consumer.position(partition) < end(consumer, partition))
                    && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
        }
        if (values.size() != count) {
            throw new AssertionError(count + " values wanted, read " + values);
        }
        return values;
    }

    private static long end(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        return consumer.endOffsets(List.of(partition)).get(partition);
    }

    private static Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private static String newTopic(int partitions) throws Exception {
        String topic = name("topic");
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
        return topic;
    }

    private static String name(String kind) {
        return kind + "-" + UUID.randomUUID();
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    private static void until(Condition condition) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("it did not come true");
            }
        }
    }

    private static void same(Object wanted, Object found) {
        if (!wanted.equals(found)) {
            throw new AssertionError("wanted " + wanted + ", found " + found);
        }
    }
}
