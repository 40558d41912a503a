"""What users' programs do, done with the clients they use: confluent-kafka, kafka-python and aiokafka.

Most tests run once per client, through the small common face that `drivers` gives each. What no client does by itself
(pipelining, versions it would not choose, reading nothing) is done on a raw socket, by `wire`.

With CLIENTS_TEST_BOOTSTRAP=HOST:PORT the tests run against another broker, such as Apache Kafka, which shows that they
ask for what Kafka does; those that must stop or configure their broker are skipped then.
"""
